"""assignment.toml, the tests and the adapters agree; and what a broken assignment.toml says."""

import ast
import inspect
from pathlib import Path

import pytest

import adapters
from staff.tests import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.toml_file import AssignmentError
from whichline_grader.authoring.spec import reference_of

PROBLEM = """command = "x"
package = "x"
points = 2
[[problem]]
id = "softmax"
title = "Softmax"
points = 2
files = []
work = "{}"
tests = {{ test_softmax = 1 }}
"""
STATED = PROBLEM.format("softmax")


def test_no_file_name_selects_tests_by_accident() -> None:
    """`-k test_scaled_dot_product_attention` matches the names of files too, of those that `uv run pytest` collects."""
    names = [name for problem in load_problems(ROOT).values() for name in problem.tests]
    paths = [path.name for path in (ROOT / "tests").rglob("*")]
    assert [(path, name) for path in paths for name in names if name in path] == []


def modules_imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return modules | {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_the_public_suite_imports_nothing_of_the_student_but_the_adapters() -> None:
    for path in (ROOT / "tests").glob("*.py"):
        imported = {module for module in modules_imported(path) if not module.startswith("problems.")}
        assert imported <= {"adapters", "pytest", "torch"}, path


def test_the_adapters_import_the_students_package_alone() -> None:
    packages = {module.partition(".")[0] for module in modules_imported(ROOT / "adapters.py")}
    assert packages == {"cs336_basics", "jaxtyping", "torch"}


def test_every_adapter_has_a_reference_with_its_arguments() -> None:
    for name, adapter in inspect.getmembers(adapters, inspect.isfunction):
        if name.startswith("run_"):
            arguments = inspect.signature(adapter).parameters
            assert inspect.signature(reference_of(name)).bind(**arguments).arguments, name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "assignment.toml:1: command is missing"),
        ("# what may be used\nallowed = 'pad'\n" + STATED, "assignment.toml:2: allowed is 'pad', expected a list"),
        (
            STATED.replace("points = 2\n[[", "points = 3\n[["),
            "assignment.toml:3: points is 3, but the problems without `bonus = true` are worth 2: which is it",
        ),
        (
            STATED.replace('id = "softmax"', 'id = "Soft-max"'),
            "assignment.toml:5: problem.id is 'Soft-max', which names a package in problems/: expected lower-case",
        ),
        (STATED.replace('id = "softmax"', 'id = "lambda"'), "digits and _, and not a word of Python's$"),
        (STATED.replace('"x"', '"My course"', 1), "assignment.toml:1: command is 'My course', expected"),
        (
            STATED.replace("files", "flies") + 'needs = "x"',
            "toml:8: problem.flies is not a known key; did you mean files.\n.*toml:4: problem.files is missing\n"
            ".*toml:11: problem.needs is 'x', expected a list",
        ),
        (PROBLEM.format("softmax|(") + 'needs = ["x"]', r":9: .*\n.*:11: problem.needs names x, which is not an ear"),
        (PROBLEM.format("softmax|("), "assignment.toml:9: problem.work is not a regular expression: missing"),
    ],
)
def test_a_broken_assignment_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "assignment.toml").write_text(text)
    with pytest.raises(AssignmentError, match=message):
        load_problems(tmp_path)
