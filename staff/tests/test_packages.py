"""The engine and the grader are for every assignment: they know none, and say what they need."""

import ast
import re
import sys
import tomllib

import pytest

from staff.tests import ROOT

OF_ONE = re.compile(
    r"\b(cs336\w*|\w*attention|softmax|causal\w*|rope|rotary|multi_?-?heads?|queries|d_k|[34]d)\b", re.IGNORECASE
)
# Names of torch's own, and of the assignment that `new-assignment` writes.
ALLOWED = ("flex_attention",)
DISTRIBUTIONS = {"_pytest": "pytest", "yaml": "pyyaml"}  # that have another name than their module


@pytest.mark.parametrize("package", ["whichline/whichline", "grader/whichline_grader"])
def test_no_word_of_an_assignment_is_in_it(package: str) -> None:
    folder = ROOT / "packages" / package
    found = [
        f"{path.relative_to(folder)}:{number}: {match[0]}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".html", ".css", ".toml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for match in OF_ONE.finditer(line)
        if match[0] not in ALLOWED
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_pattern_finds_what_it_is_for() -> None:
    for text in ("your attention", "run_scaled_dot_product_attention", "cs336_basics", "a causal mask", "the 3d cases"):
        assert OF_ONE.search(text), text
    assert not OF_ONE.search("a header of the engine")


@pytest.mark.parametrize("name", ["whichline", "grader"])
def test_a_package_declares_whatever_it_imports_and_has_the_license(name: str) -> None:
    folder = ROOT / "packages" / name
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=]", each)[0].replace("-", "_") for each in project["dependencies"]}
    (package,) = (path.parent.name for path in folder.glob("*/__init__.py"))
    files = [path for path in (folder / package).rglob("*.py") if "template" not in path.parts]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    others = {each.partition(".")[0] for each in imported} - sys.stdlib_module_names - {package}
    assert {DISTRIBUTIONS.get(each, each) for each in others} <= declared
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
