"""Tests run again on what was answered, and none of a submission's code does."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.attacks.grade import only
from whichline_grader.grading.batch import How, grade
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.processes import ANSWERS, NoSandbox
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.grading.transcripts import Provenance
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.submission import take_in

pytestmark = pytest.mark.slow
WRONG = """
from cs336_basics.nn.functional import softmax
def run_softmax(in_features, dim):
    print("dim", dim)
    if in_features.ndim == 1: raise ValueError("no")
    return softmax(in_features, -1)
def run_rope(*arguments, **more):
    import os
    os._exit(0)
"""
NOISE = """
import torch
def run_softmax(in_features, dim):
    return torch.rand(250_000)
"""


def test_a_record_much_too_large_is_not_kept(graded_suite: GradedSuite, sandbox: Sandbox, tmp_path: Path) -> None:
    tests = only(graded_suite, {"test_softmax[1d]", "test_softmax[2d-first-dim]", "test_hidden_softmax[square]"})
    tests = replace(tests, remote_calls=tests.choose([test.name for test in tests.suite.tests]))
    for name, source in (("noise.py", NOISE), ("right.py", (ROOT / "staff/tests/attacks/honest.py").read_text())):
        (tmp_path / name).write_text(source)
        assert not grade(tests, sandbox, [tmp_path / name], tmp_path / "results").faults
    (record,) = (tmp_path / "results" / ANSWERS).iterdir()
    assert record.name == take_in(tmp_path / "right.py").sha256
    assert record.stat().st_size < tests.record_bytes < 3_000_000


def read_all(out: Path) -> dict[str, object]:
    """All that a class is told, but for the times."""
    told: dict[str, object] = {path.parent.name: path.read_text() for path in out.glob("*/feedback.md")}
    for path in out.glob("*/results.json"):
        told[str(path.parent)] = json.loads(path.read_text()) | {"extra_data": None}
    return {name.removeprefix(str(out)): each for name, each in told.items()} | {"": (out / "grades.csv").read_text()}


@pytest.fixture(scope="module")
def class_of_four(
    graded_suite: GradedSuite, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> tuple[GradedSuite, list[Path], Path]:
    """A suite, four submissions, two of which are the same, and results of two machines that graded two each."""
    folder = tmp_path_factory.mktemp("class")
    suite = only(graded_suite, {"test_softmax[1d]", "test_softmax[2d-first-dim]", "test_hidden_softmax[square]"})
    paths = [folder / f"{name}.py" for name in ("ada", "alan", "grace", "kurt")]
    for path, added in zip(paths, ("", WRONG, WRONG, "def run_softmax(:"), strict=True):
        path.write_text((ROOT / "adapters.py").read_text() + added)
    for number, part in enumerate((paths[:2], paths[2:])):
        assert not grade(suite, sandbox, part, folder / f"part-{number}").faults
    return suite, paths, folder


def test_a_class_graded_on_two_machines_is_judged_on_a_third_as_on_one(class_of_four, sandbox: Sandbox) -> None:
    suite, paths, folder = class_of_four
    answers = tuple(sorted(folder.glob(f"part-*/{ANSWERS}")))
    assert len(answers) == 2
    assert not grade(suite, sandbox, paths, folder / "single").faults
    assert not grade(suite, NoSandbox(), paths, folder / "merged", How(jobs=2, answers=answers)).faults
    merged = read_all(folder / "merged")
    assert merged == read_all(folder / "single")
    assert "Traceback" not in str(merged)
    assert "in_features.ndim" in str(merged)


def claim(**what: object) -> Callable[[bytes, bytes], bytes]:
    """Have a record say that it belongs to something else."""

    def change(own: bytes, _: bytes) -> bytes:
        head, _, rest = own.partition(b"\n")
        return json.dumps(Provenance(*json.loads(head))._replace(**what)).encode() + b"\n" + rest  # type: ignore[arg-type]

    return change


SPOILED = {
    "another submission": (lambda _, other: other, "has the answers of another submission; copy it again"),
    "cut": (lambda *_: b"[1", "is damaged; copy it again"),
    "cut later": (lambda own, _: own[:-20], "its answers do not hold all that it is asked; `grade` without --answers"),
    "another seed": (claim(seed=1), "answers hidden cases of another secret; grade it with that of this course"),
    "another suite": (claim(asked="x"), "was written with another suite, or with other limits, another Python or "),
}


def test_where_a_test_has_changed_nothing_is_asked_again(class_of_four, sandbox: Sandbox) -> None:
    suite, (_, alan, *_), folder = class_of_four
    changed = replace(suite, suite=replace(suite.suite))
    vars(changed)["sha256"] = "of a suite in which a test has changed"  # a cached property
    done = grade(changed, NoSandbox(), [alan], folder / "part-0")
    assert (done.already, done.faults) == (0, {})
    with Gradebook(folder / "part-0" / "gradebook.sqlite") as gradebook:
        grading = gradebook.of("alan.py")
    assert grading
    assert (grading.suite, grading.layer) == (changed.sha256, str(sandbox.achieved))


@pytest.mark.parametrize("how", ["missing", *SPOILED])
def test_answers_that_are_no_ones_are_named_and_nobody_else_suffers(class_of_four, tmp_path: Path, how: str) -> None:
    suite, (ada, alan, *_), folder = class_of_four
    answers = Path(shutil.copytree(folder / "part-0" / ANSWERS, tmp_path / "answers"))
    own, other = (answers / take_in(path).sha256 for path in (ada, alan))
    change, said = SPOILED.get(how, (None, "its answers are in no folder of --answers; "))
    own.write_bytes(change(own.read_bytes(), other.read_bytes())) if change else own.unlink()
    done = grade(suite, NoSandbox(), [ada, alan], tmp_path / "out", How(answers=(answers,)))
    assert done.faults.keys() == {"ada.py"}
    assert said in done.faults["ada.py"]
    assert "\n" not in done.faults["ada.py"]
    assert (tmp_path / "out" / "alan.py" / "feedback.md").exists()
    others = replace(suite, remote_calls={**suite.remote_calls, "one more": []})
    assert others.compute_provenance("x") != suite.compute_provenance("x")


def test_who_answered_twice_and_not_the_same_is_named(class_of_four, sandbox: Sandbox, tmp_path: Path) -> None:
    suite, (ada, *_), _ = class_of_four
    source = "import os, torch\ndef run_softmax(*a, **b): return torch.tensor([*os.urandom(9)])"
    (tmp_path / "eve.py").write_text(source)
    for part in ("a", "b"):
        grade(suite, sandbox, [tmp_path / "eve.py", ada], tmp_path / part)
    answers = (tmp_path / "a" / ANSWERS, tmp_path / "b" / ANSWERS)
    done = grade(suite, NoSandbox(), [tmp_path / "eve.py", ada], tmp_path / "out", How(answers=answers))
    assert done.faults.keys() == {"eve.py"}
    assert done.faults["eve.py"].startswith("it answered twice, and not the same: delete one of ")
