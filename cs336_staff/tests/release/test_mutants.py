"""Mutants of the solution: they are made, tried in place of it, and taken back."""

import subprocess
import sys

import pytest

from cs336_kit.engine.assignment import load_problems
from cs336_staff.release.mutants import equivalents, modules_of, mutants_of, own_tests_of
from cs336_staff.tools.student import ROOT

SOURCE = """\
WIDTH = 80


def area(width):
    # a comment
    return width * 2
"""

# In a process of its own: in this one the types of the handout are wrapped around the solution's functions.
VERIFY_LINEAR = """\
from pathlib import Path
from cs336_staff.release import mutants
from cs336_staff.release.stages import Stage
from cs336_staff.release.verify import both_suites
{change}
stage = Stage()
mutants.verify_mutants(both_suites(Path({root!r})), stage, ["cs336_basics.nn.linear"])
print(stage.done, *stage.errors, sep="\\n")
"""


def verify_linear(change: str) -> list[str]:
    code = VERIFY_LINEAR.format(change=change, root=str(ROOT))
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_functions_are_mutated_and_nothing_else():
    mutants = list(mutants_of("area", SOURCE))
    assert {mutant.line for mutant in mutants} == {"return width / 2", "return width * 3"}
    assert all("WIDTH = 80" in mutant.source for mutant in mutants)


def test_what_is_listed_is_of_a_module_that_is_tried():
    modules = modules_of(load_problems(ROOT))
    assert {module for module, _ in equivalents()} <= modules.keys()
    assert all(own_tests_of(module) for module in modules)


@pytest.mark.slow
def test_a_survivor_that_is_not_listed_and_a_listed_one_that_is_killed():
    tried, *complaints = verify_linear(
        "mutants.equivalents = lambda: {('cs336_basics.nn.linear', 'self.weight = None')}"
    )
    assert int(tried) > 30
    assert "no test fails with the line return einsum(x, self.weight" in complaints[0]
    assert "listed as equivalent, but is not: self.weight = None" in complaints[-1]
