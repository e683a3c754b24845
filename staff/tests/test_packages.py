"""The engine and the grader are for every assignment: they know none, and say what they need."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from staff.tests import ROOT

WORDS = r"\b(cs336\w*|\w*attention|softmax|causal\w*|rope|rotary|multi_?-?heads?|queries|d_k|[34]d)\b"
OF_ONE = re.compile(WORDS, re.IGNORECASE)
# Names of torch's own, and of the assignment that `new-assignment` writes.
ALLOWED = ("flex_attention",)
DISTRIBUTIONS = {"_pytest": "pytest", "yaml": "pyyaml"}  # that have another name than their module
# The glossary of design.md has better ones.
OLD_WORDS = {"way", "told", "tell", "tells", "lent", "room", "works", "asks", "said", "made", "given"}
OLD_WORDS |= {"sealed", "rehearsed", "advice", "advisor", "loss", "losses", "overrule", "overruled", "mended", "came"}
SENTENCES = ROOT / "staff/tests/locate/constructs"  # programs that are named by sentences, as tests are


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


def list_names(path: Path) -> Iterator[str]:
    """List the names of a module, its classes and its functions, but for tests, which are sentences."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("test_"):
            yield node.name


def find_old_words(name: str) -> set[str]:
    return OLD_WORDS & {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}


def test_no_name_has_an_old_word() -> None:
    files = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / file for file in files.split() if SENTENCES not in (ROOT / file).parents]
    found = [f"{path.relative_to(ROOT)}: {name}" for path in paths for name in list_names(path) if find_old_words(name)]
    assert not found, "\n" + "\n".join(found)


def test_a_name_is_split_into_words() -> None:
    assert [*map(find_old_words, ("_list_told", "StaffRoom", "is_made_of"))] == [{"told"}, {"room"}, {"made"}]
    assert not any(map(find_old_words, ("always", "threshold", "network_status", "Placement")))
