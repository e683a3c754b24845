"""Right programs with mistakes written into them, and what is told of these."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from staff.tools.student import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.finding import Finding
from whichline.engine.suite import Suite, load_suite
from whichline.locate.explain import explain

RIGHT = (Path(__file__).parent / "program.py").read_text()
PROBLEMS = load_problems(ROOT)
SOFTMAX, ATTENTION, LINEAR, ROPE, HEADS = list(PROBLEMS)[:5]
Explain = Callable[..., list[Finding]]


def run_source(source: str, path: Path) -> SimpleNamespace:
    """Write a program, and run it: what it defines."""
    path.write_text(source)
    namespace: dict[str, object] = {"__name__": "program"}
    exec(compile(source, str(path), "exec"), namespace)  # noqa: S102 (the program of a test)
    return SimpleNamespace(**namespace)


def marked(finding: Finding) -> str:
    """The expression under which the mark stands."""
    code, mark = next(pair for pair in zip(finding.code, finding.code[1:], strict=False) if "^" in pair[1])
    return code[mark.index("^") : len(mark)]


def above(line: str, code: str) -> tuple[str, str]:
    """The replacement that puts code above a line."""
    return line, f"{code}\n\n\n{line}"


@pytest.fixture(scope="session")
def public() -> Suite:
    return load_suite(ROOT, [ROOT / "tests"], PROBLEMS)


@pytest.fixture
def program(public: Suite, tmp_path: Path) -> Callable[..., Suite]:
    """The public suite on a right program with these replacements, and with more lines at its end."""

    def program(*edits: tuple[str, str], how: str = "where", after: str = "") -> Suite:
        source = RIGHT
        for old, new in edits:
            assert old in source
            source = source.replace(old, new, 1)
        stated = {id: replace(problem, feedback=how) for id, problem in PROBLEMS.items()}  # type: ignore[arg-type]
        public.calls.adapters = run_source(source + after, tmp_path / "adapters.py")
        public.calls.made.clear()
        return replace(public, root=tmp_path, problems=stated)

    return program


@pytest.fixture
def find(program: Callable[..., Suite]) -> Explain:
    """The findings about some problems, after these replacements in a right program."""

    def find(
        problems: list[str], *edits: tuple[str, str], most: int = 3, how: str = "where", errors: list[str] | None = None
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
