"""Wrong programs as text. Each Markdown file in this folder holds those that were written on one occasion:

    ### attention-isqrt
    Tutor: The scores are divided by the square root of d_k rounded down to a whole number.
    Findings: scaled_dot_product_attention-scaled-scores at `int(math.sqrt(Q.shape[-1]))`
    Verdict: true
    ```python
    def run_scaled_dot_product_attention(Q, K, V, mask=None):
        ...
    ```

There is a `Tutor:` for each mistake. `Findings:` are those that a student reads, in their order, with the expressions
that are marked, or `none`, or, where the public suite passes, `passes`. `IMPORTS` come before the code. Adapters that
it does not define are right.
"""

import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from staff.tests import ROOT
from whichline.engine.problem_folder import list_adapters
from whichline.engine.suite import Suite
from whichline_grader.authoring.spec import load_specs

FOLDER = Path(__file__).parent
IMPORTS = """\
import math
import numpy as np
import torch
from einops import einsum, rearrange, reduce, repeat
from torch import Tensor, nn
"""
VERDICTS = (
    "true",  # every mistake is named, and nothing untrue or misleading is said
    "partial",  # some mistake is named, or measured without its cause, and nothing untrue is said
    "silent",  # no mistake is named or measured
    "untrue",  # something is said that is not true of the code
)
LAYOUT = re.compile(
    r"(?P<tutor>(?:Tutor: .+\n)+)"
    r"Findings: (?P<findings>.+)\n"
    rf"Verdict: (?P<verdict>{'|'.join(VERDICTS)})(?: \((?P<why>.+)\))?\n"
    r"```python\n(?P<code>(?:.*\n)+?)```\n+"
)


@dataclass(frozen=True)
class Specimen:
    """A wrong program, what a tutor would say about it, and the verdict of a person on what is said."""

    written: str  # the occasion, which is the name of the file
    name: str  # the heading
    tutor: tuple[str, ...]  # a sentence for each mistake
    findings: str  # the ids of what is found, as they stand in the file
    verdict: str  # one of `VERDICTS`
    code: str  # the program, imports and all

    def __str__(self) -> str:
        return f"{self.written}/{self.name}"

    def adapters(self) -> dict[str, Callable[..., Any]]:
        """Run the program anew; its `run_*` functions."""
        namespace: dict[str, Any] = {}
        linecache.cache[self.file] = len(self.code), None, self.code.splitlines(keepends=True), self.file
        exec(compile(self.code, self.file, "exec"), namespace)  # noqa: S102 (the course's own)
        followed = {name for problem in load_specs() for name in list_adapters(problem)}
        return {name: namespace[name] for name in namespace if name in followed}

    @property
    def file(self) -> str:
        """Its place among a student's files, though it is in memory alone."""
        return str(ROOT / "cs336_basics" / self.written / f"{self.name}.py")


def choose_tests(suite: Suite, adapters: Mapping[str, Any]) -> Suite:
    """The suite with no tests but those of problems that some of these adapters are of."""
    problems = {problem for problem in suite.problems if adapters.keys() & list_adapters(problem)}
    return replace(suite, tests=[test for test in suite.tests if test.problem in problems])


def read_specimens(path: Path) -> Iterator[Specimen]:
    for section in re.split(r"^### ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        found = LAYOUT.fullmatch(text)
        assert found, f"{path.name}, ### {name}: expected Tutor, Findings, Verdict and a block of Python"
        assert found["verdict"] == "true" or found["why"], f"{path.name}, ### {name}: say why, in parentheses"
        tutor = tuple(line.removeprefix("Tutor: ") for line in found["tutor"].splitlines())
        yield Specimen(path.stem, name, tutor, found["findings"], found["verdict"], f"{IMPORTS}\n{found['code']}")


SPECIMENS = [specimen for path in sorted(FOLDER.glob("*.md")) for specimen in read_specimens(path)]
