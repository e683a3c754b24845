"""A class whose grades are known before anything is graded, by what was handed in.

They come from the points of the assignment, from the prices in cs336_staff/docs/points.md, and from
cs336_staff/tests/shadow_class/class.toml.
"""

import ast
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from cs336_kit.engine.assignment import find_root
from cs336_staff.tests.attacks import made
from cs336_staff.tests.attacks.attack import SUBMISSIONS as ATTACKS

ROOT = find_root(Path(__file__).parent)
TREES = ROOT / "cs336_staff" / "tests" / "shadow_class"
PROGRAMS = sorted((ROOT / "cs336_staff" / "authoring" / "right_programs").glob("*.py"))
SOFTMAX, REQUIRED, ALL = 2, 15, 22  # points of softmax, of what is required, and with every bonus problem

# Mistakes with a price in points.md, as edits of the solution.
FUNCTIONAL, ATTENTION = "cs336_basics/nn/functional.py", "cs336_basics/nn/attention.py"
SOLVED = ("adapters.py", FUNCTIONAL, ATTENTION, "cs336_basics/nn/linear.py", "cs336_basics/nn/rope.py")
FAULTS = {
    "scores not divided by √d_k": (FUNCTIONAL, " / math.sqrt(Q.shape[-1])", ""),
    "ε = 1e-9 in the denominator of softmax": (FUNCTIONAL, "total == 0.0, 1.0)", "total == 0.0, 1.0) + 1e-9"),
    "causal mask off by one": (ATTENTION, ".tril()", ".tril(1)"),
    "RoPE on pairs (i, i + d_k/2)": (FUNCTIONAL, "(pair two)", "(two pair)"),
    "mask inverted": (FUNCTIONAL, "torch.where(mask,", "torch.where(~mask,"),
    "mask ignored": (FUNCTIONAL, "scores if mask is None else", "scores if True else"),
    "softmax over the queries": (FUNCTIONAL, "softmax(scores, dim=-1)", "softmax(scores, dim=-2)"),
    "multi-head ignores the positions": (ATTENTION, "if token_positions is None:", "if True:"),
    "W_O not used": (ATTENTION, "return self.output_proj(", "return ("),
    "attention detached from autograd": (FUNCTIONAL, "values(weights, V)", "values(weights, V).detach()"),
}
HOSTILE = ("answers/frame_walk", "ending/os_exit_at_import", "patching/patch_pytest_reports", "channel/forged_reply")
HOSTILE += ("imports/import_hook", "processes/subprocess_run")

IN_TIME, TWO_DAYS_LATE = "2026-09-30 12:00:00.0 Z", "2026-10-03 12:00:00.0 Z"  # as Gradescope writes it
LATE, EXTENDED, MAILED, GROUP = 8, 2, 7, 11  # numbers of students


class Work(NamedTuple):
    """What is handed in, and what it should get.

    Args:
        what: it is, for people.
        path: of a folder or a file.
        points: it should get.
        softmax: how many of these are for softmax.
        hostile: whether `points` are the most that it may get.
    """

    what: str
    path: Path
    points: float
    softmax: float = SOFTMAX
    hostile: bool = False


@dataclass(frozen=True)
class Student:
    """One of the class: a number from 1, the work, and the part of the points that lateness costs."""

    number: int
    work: Work
    penalty: float = 0.0

    @property
    def keys(self) -> list[str]:
        """The student, and a partner in the group, as grades.csv knows them."""
        first = f"student{self.number}" if self.number == MAILED else str(1000 + self.number)
        return [first, str(1900 + self.number)] if self.number == GROUP else [first]

    def hand_in(self, week: Path, at: str = IN_TIME) -> None:
        """Put the work where it lies once staff have downloaded it, under the name that it has there."""
        key, is_folder = self.keys[0], self.work.path.is_dir()
        if self.number == MAILED:
            shutil.copytree(self.work.path, week / "mail" / key)
        elif self.number % 3 == 2:  # Gradescope has a folder for each, and one file that says of all who and when
            folder = week / "gradescope" / f"submission_{key}"
            folder.mkdir(parents=True)
            if is_folder:
                shutil.copytree(self.work.path, folder, dirs_exist_ok=True)
            else:
                shutil.copy(self.work.path, folder / "adapters.py")
            with (week / "gradescope" / "submission_metadata.yml").open("a") as metadata:
                metadata.write(f"{folder.name}:\n  :created_at: {at}\n  :submitters:\n")
                metadata.writelines(f"  - :sid: '{key}'\n    :name: student {key}\n" for key in self.keys)
        else:
            (week / "canvas").mkdir(parents=True, exist_ok=True)
            name = str(week / "canvas" / f"student{self.number}_{key}_{5000 + self.number}_attention")
            if is_folder:
                shutil.make_archive(name, "zip", self.work.path)
            else:
                shutil.copy(self.work.path, name + self.work.path.suffix)


def make_class(start: Path, folder: Path, students: int) -> list[Student]:
    """Make up students, one of every kind in the first dozen.

    Args:
        start: the tree that they received.
        folder: for what they write, which is empty.
        students: how many, at most 40.
    """
    works = islice(_works(start, folder), students)
    return [Student(number, work) for number, work in enumerate(works, start=1)]


def _works(start: Path, folder: Path) -> Iterator[Work]:
    rows = [line.strip("|").split("|") for line in (ROOT / "cs336_staff/docs/points.md").read_text().splitlines()]
    prices = [row for row in rows if len(row) == 7 and "." in row[-1]]  # name, in softmax, in attention, ..., in all
    price = {row[0].strip(): (float(row[-1]), float(row[1].strip() or 0)) for row in prices}
    deserved = tomllib.loads((TREES / "class.toml").read_text(encoding="utf-8"))

    def faulty(what: str) -> Work:
        (file, right, wrong), (lost, in_softmax), path = FAULTS[what], price[what], folder / what.replace("/", " ")
        shutil.copytree(start / "cs336_basics", path / "cs336_basics")  # the bonus problems stay as they are
        for name in SOLVED:
            shutil.copy(ROOT / name, path / name)
        source = (path / file).read_text()
        assert right in source, f"{file} has no {right!r}"
        (path / file).write_text(source.replace(right, wrong))
        return Work(what, path, REQUIRED - lost, SOFTMAX - in_softmax)

    right = [
        Work(name, TREES / name, tree["points"])
        for name, tree in deserved.items()
        if tree["points"] == REQUIRED and "python" not in tree
    ]
    copy = right[0]._replace(what=f"{right[0].what}, copied without its comments", path=folder / "copied")
    shutil.copytree(right[0].path, copy.path)
    for file in copy.path.rglob("*.py"):
        file.write_text(ast.unparse(ast.parse(file.read_text())))
    programs = [Work(f"{path.stem}, with every bonus problem", path, ALL) for path in PROGRAMS]
    attacks = [ATTACKS / f"{name}.py" for name in HOSTILE]
    attacks[1:1] = [made.climbing_archive(folder, ROOT), made.linking_archive(folder, ROOT)]
    most = price["ones"][1]  # each writes softmax alone, and one of ones earns the most of those that compute nothing
    hostile = [Work(f"hostile: {path.name}", path, most, most, hostile=True) for path in attacks]

    yield Work("nothing written", start, 0, 0)
    yield Work("only softmax and the linear layer", TREES / "38_only_softmax_and_linear", 3)
    for works in zip_longest([*right[:2], copy, *right[2:]], map(faulty, FAULTS), hostile, programs):
        yield from filter(None, works)
