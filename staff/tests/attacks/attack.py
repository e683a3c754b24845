"""The attacks of the catalogue, as submissions.

A head `NAME: PLAIN: REPORT`, or `NAME on MACHINE: ...`, says what becomes of an attack in a plain in-process run (an
`Outcome` of `plain.py`), and a text that the feedback to the student has. Below it, after a comment that says what it
tries, comes the body of `run_softmax`, or a whole file, if that name is in it, or `at import` what stands above a wrong
one.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

from staff.tests.attacks.catalogue import answers, archives, channel, feeder, machine
from whichline_grader.grading.identity import make_safe_name

TEXT = answers.ATTACKS + channel.ATTACKS + machine.ATTACKS + feeder.ATTACKS
HEAD = re.compile(r"^(\w+)(?: on (\w+))?(?: at (import))?: (\w+): (.*)$", re.MULTILINE)
_, *PIECES = HEAD.split(TEXT)
CODE = dict(zip(PIECES[0::6], PIECES[5::6], strict=True))
AT_IMPORT = {id for id, _, when, *_ in HEAD.findall(TEXT) if when}
PRELUDE = """\
import atexit, builtins, collections, concurrent.futures, contextlib, ctypes, gc, importlib.abc, importlib.util, io
import itertools, json, mmap, os, pathlib, signal, socket, struct, subprocess, sys, threading, time, types, unittest
import torch
def zeros(in_features, dim):
    return in_features * 0
def find(name):  # a variable of the callers
    frame = sys._getframe()
    while frame := frame.f_back:
        if name in frame.f_locals:
            return frame.f_locals[name]
# These modules serve a worker; a plain run has none of them.
serve, frames = (
    sys.modules.get(f"whichline_grader.sandbox.inside.{name}", types.SimpleNamespace()) for name in ("serve", "frames")
)
"""


@dataclass(frozen=True)
class Attack:
    """A submission that tries what it should not: where it lies, and what its head says."""

    path: Path
    id: str
    machine: str
    plain: str
    report: str

    @property
    def name(self) -> str:
        """The name of its report."""
        return make_safe_name(self.path.name)

    @property
    def neighbour(self) -> str:
        """The name of the honest submission that is graded after it."""
        return f"after-{Path(self.name).stem[:80]}.py"


def list_attacks(folder: Path = Path()) -> list[Attack]:
    """Every attack, and where it lies once it is written into `folder`."""
    return [
        Attack(folder / (f"{id}.py" if id in CODE else archives.find(id)[0]), id, machine, *rest)
        for id, machine, _, *rest in HEAD.findall(TEXT + "\n".join(archives.ATTACKS))
    ]


def find_attacks(folder: Path, ids: Collection[str] = ()) -> Iterator[Attack]:
    """Those of these ids, or every one, written into `folder`."""
    for attack in list_attacks(folder):
        if not ids or attack.id in ids:
            write_attack(attack.id, folder)
            yield attack


def write_attack(id: str, folder: Path) -> Path:
    if id not in CODE:
        return archives.write_archive(id, folder)
    code = dedent(CODE[id]) + "run_softmax = zeros\n" * (id in AT_IMPORT)
    if "run_softmax" not in code:
        code = f"def run_softmax(in_features, dim):\n{indent(code.strip(), '    ')}\n    return in_features * 0\n"
    path = folder / f"{id}.py"
    path.write_text(PRELUDE + code)
    return path
