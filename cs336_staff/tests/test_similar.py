"""Submissions that resemble each other: copies are found; honest programs, given code and hostile sources are not."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from cs336_staff.cli import staff
from cs336_staff.release.handout import cut_solution
from cs336_staff.similarity import commands, fingerprints
from cs336_staff.tests import ROOT
from cs336_staff.tests.grading.shadow_class import write_tree

HONEST = sorted((ROOT / "cs336_staff" / "problems" / "right_programs").glob("*.py"))

# What has ended programs that read Python: deep nesting, long chains, huge numbers, and bytes that are not text.
HOSTILE = {
    "parentheses": b"(" * (1 << 17),
    "brackets": b"x = " + b"[" * 150 + b"]" * 150,
    "minus": b"x = " + b"-" * 20_000 + b"1",
    "chain": b"x" + b".a" * 60_000,
    "sum": b"x = 1" + b" + 1" * 10_000,
    "digits": b"x = " + b"9" * 10_000,
    "null": b"x = 1\0",
    "surrogate": b"x = '\xed\xa0\x80'",
    "latin": "é = 1".encode("latin-1"),
    "coding": b"# coding: no-such-coding\nx = 1",
    "markup": b"".join(b"x = '</td><script>alert(1)</script>' + %d\n" % n for n in range(30)),
}


class Renamed(ast.NodeTransformer):
    """Gives every name that the program binds another one."""

    def __init__(self, tree: ast.AST) -> None:
        nodes = list(ast.walk(tree))
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        self.names = {name: f"my_{n}" for n, name in enumerate(sorted(bound)) if not name.startswith("run_")}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "arg", "name"):
            if (old := getattr(node, field, None)) in self.names and not isinstance(node, ast.alias):
                setattr(node, field, self.names[old])
        return super().generic_visit(node)


def copied(source: str) -> str:
    """Return the source with other names, no comments, other formatting, and its functions in another order."""
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    tree.body = [*(node for node in tree.body if node not in functions), *reversed(functions)]
    return ast.unparse(Renamed(tree).visit(tree))


@pytest.fixture(scope="module", autouse=True)
def _given_once() -> Iterator[None]:
    """What every student has is the same for every test here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "_given", cache(commands._given))
        yield


def compare(folder: Path, *handed_in: Path) -> tuple[list[tuple[int, str, str]], str]:
    """Compare these and the honest programs, and return the pairs of the page, and all that was said."""
    result = CliRunner().invoke(staff, ["similar", *map(str, [*HONEST, *handed_in]), "--out", str(folder / "results")])
    assert result.exit_code == 0, result.output
    page = (folder / "results" / "similar.html").read_text()
    pairs = re.findall(r"<summary><b>(\d+)%</b>(\S+) and (\S+)</summary>", page)
    return [(int(similar), one, other) for similar, one, other in pairs], " ".join(result.output.split()) + page


def written(path: Path, source: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    return path


def test_a_copy_with_other_names_in_another_order_is_the_most_alike(tmp_path):
    original = HONEST[2]
    [(first, *names), (second, *_), *_], said = compare(
        tmp_path, written(tmp_path / "copy.py", copied(original.read_text()))
    )
    assert sorted(names) == ["copy.py", original.name]
    assert first > 80
    assert second < 50
    assert re.search(r"<mark>[^<]*masked_fill\(m == -math.inf", said)
    assert f"│ {first}% │ {names[0]} " in said
    assert "Resemblance is not proof" in said


def test_the_same_files_are_as_similar_in_every_process(tmp_path):
    command = [Path(sys.executable).with_name("cs336"), "staff", "similar", *HONEST, "--out", tmp_path / "other"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    compare(tmp_path)
    pages = [tmp_path / folder / "similar.html" for folder in ("other", "results")]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_what_many_copied_is_identical_and_only_that(tmp_path):
    shadow = sorted((ROOT / "cs336_staff" / "tests" / "shadow_class").glob("0*"))
    copies = [written(tmp_path / f"copy{n}.py", f"# {n}\n" + HONEST[1].read_text()) for n in range(12)]
    pairs, said = compare(tmp_path, *shadow, *copies)
    assert f"Identical: {HONEST[1].name}, copy0.py, copy1.py" in said
    assert said.count("Identical: ") == 1
    assert len([names for _, *names in pairs if {*names} & {path.name for path in copies}]) == 0


def test_some_functions_that_were_copied_are_found(tmp_path):
    """Two programs of the class, one of which has most of its functions from the other."""
    both = [write_tree(name, tmp_path) for name in ("49_f_linear_in_linear", "53_blind_to_itself")]
    pairs, _ = compare(tmp_path, *both)
    assert pairs[0][0] > 80
    assert sorted(pairs[0][1:]) == ["49_f_linear_in_linear", "53_blind_to_itself"]


def test_independent_programs_are_not_alike(tmp_path):
    pairs, said = compare(tmp_path)
    assert max(similar for similar, *_ in pairs) < 50
    assert re.search(r"resemble no other by more than [1-4]\d%\.", said)


def test_the_code_that_everybody_was_given_counts_nothing(tmp_path):
    names = ["adapters.py", *(str(path.relative_to(ROOT)) for path in (ROOT / "cs336_basics").rglob("*.py"))]
    for student in ("ada", "alan"):
        for name in names:
            written(tmp_path / student / name, cut_solution(name, (ROOT / name).read_text())[0])
        written(tmp_path / student / "cs336_kit/cli.py", (ROOT / "cs336_kit/cli.py").read_text())
        written(tmp_path / student / "cs336_basics/chunks.py", (ROOT / "cs336_kit/lab/contenders.py").read_text())
    pairs, said = compare(tmp_path, tmp_path / "ada", tmp_path / "alan")
    assert not [names for _, *names in pairs if {"ada", "alan"} & {*names}]
    assert "Not compared: ada: next to nothing that is not given" in said
    assert "Identical" not in said.partition("<!doctype")[0]


def test_attempts_of_a_student_and_members_of_a_group_are_no_pair(tmp_path):
    source = HONEST[0].read_text()
    attempts = [written(tmp_path / f"{n}" / f"ada_1234_{n}_hw-{n}.py", f"{source}\nATTEMPT = {n}\n") for n in (1, 2)]
    submitters = {"submission_11": ["007", "008"], "submission_12": ["008"]}
    metadata = [
        f"{name}:\n  :submitters:\n" + "".join(f"  - {{':sid': '{student}'}}\n" for student in students)
        for name, students in submitters.items()
    ]
    written(tmp_path / "submission_metadata.yml", "".join(metadata))
    group = [written(tmp_path / name / "adapters.py", f"{source}\n{name} = 0\n").parent for name in submitters]
    pairs, _ = compare(tmp_path, *attempts, *group)
    named = [{*names} for _, *names in pairs]
    assert {attempts[0].name, HONEST[0].name} in named
    assert {"submission_11", attempts[1].name} in named
    assert {path.name for path in attempts} not in named
    assert {*submitters} not in named


def test_a_hostile_source_is_shown_as_text_and_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "CPU_SECONDS", 1)
    files = [written(tmp_path / "in" / f"{name}.py", source) for name, source in HOSTILE.items()]
    files += [written(tmp_path / "in" / f"{n}.py", HOSTILE["markup"] + b"y = 1\n" * n) for n in (1, 2)]
    copy = written(tmp_path / "copy.py", copied(HONEST[1].read_text()))
    pairs, said = compare(tmp_path, *files, copy, written(tmp_path / "no.zip", b"PK"))
    assert ["copy.py", HONEST[1].name] in [sorted(names) for _, *names in pairs]
    assert "Not compared: parentheses.py: too large to be compared" in said
    assert "Not compared: chain.py: cannot be compared: reading it takes too much time or memory" in said
    assert "Not compared: no: expected a zip archive" in said
    assert "&lt;script&gt;alert(1)" in said
    assert "<script" not in said


def test_one_submission_is_not_enough(tmp_path):
    result = CliRunner().invoke(staff, ["similar", str(HONEST[0]), "--out", str(tmp_path / "results")])
    assert result.exit_code == 1
    assert result.output.endswith("Error: expected at least two submissions that can be compared\n")
    assert not (tmp_path / "results").exists()
