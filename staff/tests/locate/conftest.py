"""Right programs with mistakes written into them, and what is told of these."""

import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from staff.tests.locate.program import __file__ as PROGRAM
from staff.tools.student import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.finding import Finding
from whichline.engine.suite import Suite, load_suite
from whichline.locate.explain import explain

Explain = Callable[..., list[Finding]]


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Suite]:
    """The public suite on a right program with these replacements."""

    def program(*edits: tuple[str, str], how: str = "where") -> Suite:
        source = Path(PROGRAM).read_text()
        for old, new in edits:
            assert old in source
            source = source.replace(old, new, 1)
        (tmp_path / "adapters.py").write_text(source)
        namespace: dict[str, object] = {"__name__": "program"}
        exec(compile(source, str(tmp_path / "adapters.py"), "exec"), namespace)  # noqa: S102 (the program)
        stated = {id: replace(problem, told=how) for id, problem in load_problems(ROOT).items()}  # type: ignore[arg-type]
        return replace(load_suite(ROOT, [ROOT / "tests"], stated, types.SimpleNamespace(**namespace)), root=tmp_path)

    return program


@pytest.fixture
def find(program: Callable[..., Suite]) -> Explain:
    """The findings about some problems, after these replacements in a right program."""

    def find(
        problems: list[str],
        *edits: tuple[str, str],
        most: int = 3,
        how: str = "where",
        errors: list[str] | None = None,
    ) -> list[Finding]:
        suite = program(*edits, how=how)
        suite = replace(suite, tests=[test for test in suite.tests if test.problem in problems])
        return explain(suite, [suite.run(test) for test in suite.tests], most, errors=errors)

    return find


@pytest.fixture
def find_alone(program: Callable[..., Suite]) -> Explain:
    """The findings about one problem, of which alone the tests run, after these replacements."""

    def find_alone(problem: str, *edits: tuple[str, str]) -> list[Finding]:
        suite = program(*edits)
        return explain(suite, [suite.run(test) for test in suite.tests if test.problem == problem])

    return find_alone
