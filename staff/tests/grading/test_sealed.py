"""Tests run again on what was answered, and none of a submission's code does."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from staff.tests import ROOT
from staff.tests.attacks.grade import only
from whichline_grader.grading.batch import How, grade
from whichline_grader.grading.gradebook import Gradebook
from whichline_grader.grading.one_submission import grade_one
from whichline_grader.grading.processes import ANSWERS, NoSandbox
from whichline_grader.grading.questions import Sealed, read_sealed
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.sandbox.confinement import Sandbox, start
from whichline_grader.sandbox.submission import Submission, take_in

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


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with start("bubblewrap") as sandbox:
        yield sandbox


def read(record: bytes, suite: GradedSuite) -> Sealed | None:
    return read_sealed(record, suite.questions, suite.provenance_of("x"))


def test_results_from_the_record_are_those_of_the_run(graded_suite: GradedSuite, sandbox: Sandbox) -> None:
    files = dict(take_in(ROOT).files)
    submission = Submission("x", files | {"adapters.py": files["adapters.py"] + WRONG.encode()}, "adapters")
    tests = [test.name for test in graded_suite.suite.tests if test.problem in ("softmax", "linear", "rope")]
    suite = only(graded_suite, tests)
    results, notes, sealed = grade_one(suite, sandbox, submission)
    record = sealed.as_bytes(suite.provenance_of("x"))
    assert len(record) < 2 << 20
    again, noted, resealed = grade_one(suite, NoSandbox(), submission, read(record, suite))
    assert [replace(result, seconds=0) for result in again] == [replace(result, seconds=0) for result in results]
    assert noted == notes
    assert "dim" in notes.stdout
    assert resealed.as_bytes(suite.provenance_of("x")) == record


def test_what_is_no_record_of_these_questions_is_as_good_as_none(graded_suite: GradedSuite, sandbox: Sandbox) -> None:
    tests = only(graded_suite, {"test_softmax[1d]"})
    _, _, sealed = grade_one(tests, sandbox, take_in(ROOT))
    record = sealed.as_bytes(graded_suite.provenance_of("x"))
    assert read(record, graded_suite)
    for damaged in (b"", b"x", record[:-20], record[:50]):
        assert read(damaged, graded_suite) is None
    others = replace(graded_suite, questions={**graded_suite.questions, "one more": []})
    assert read(record, others) is None


NOISE = """
import torch
def run_softmax(in_features, dim):
    return torch.rand(250_000)
"""


def test_a_record_that_is_much_larger_than_that_of_right_answers_is_not_kept(
    graded_suite: GradedSuite, sandbox: Sandbox, tmp_path: Path
) -> None:
    tests = only(graded_suite, {"test_softmax[1d]", "test_softmax[2d-first-dim]", "test_hidden_softmax[square]"})
    tests = replace(tests, questions=tests.choose([test.name for test in tests.suite.tests]))
    for name, source in (("noise.py", NOISE), ("right.py", (ROOT / "staff/tests/attacks/honest.py").read_text())):
        (tmp_path / name).write_text(source)
        assert not grade(tests, sandbox, [tmp_path / name], tmp_path / "results").faults
    (record,) = (tmp_path / "results" / ANSWERS).iterdir()
    assert record.name == take_in(tmp_path / "right.py").sha256
    assert record.stat().st_size < tests.record_bytes < 3_000_000


def test_where_a_test_has_changed_nothing_is_asked_again(
    graded_suite: GradedSuite, sandbox: Sandbox, tmp_path: Path
) -> None:
    tests = only(graded_suite, {"test_softmax[1d]", "test_softmax[2d-first-dim]", "test_hidden_softmax[square]"})
    (tmp_path / "wrong.py").write_text((ROOT / "adapters.py").read_text() + WRONG)
    out = tmp_path / "results"
    grade(tests, sandbox, [tmp_path / "wrong.py"], out)
    assert len(list((out / ANSWERS).iterdir())) == 1
    changed = replace(tests, suite=replace(tests.suite))
    vars(changed)["sha256"] = "of a suite in which a test has changed"  # a cached property
    done = grade(changed, NoSandbox(), [tmp_path / "wrong.py"], out)
    assert (done.already, done.faults) == (0, {})
    with Gradebook(out / "gradebook.sqlite") as gradebook:
        grading = gradebook.of("wrong.py")
    assert grading
    assert grading.suite == changed.sha256
    assert grading.layer == str(sandbox.achieved)


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


def spoil(answers: Path, content: str, change: Callable[[dict[str, object]], object]) -> None:
    """Change what a record says it belongs to, or with it what it holds."""
    path = answers / content
    head, _, rest = path.read_bytes().partition(b"\n")
    stated: dict[str, object] = dict(zip(("content", "seed", "asked"), json.loads(head), strict=True))
    change(stated)
    path.write_bytes(json.dumps([*stated.values()]).encode() + b"\n" + rest)


SPOILED = {
    "missing": (lambda answers, own, other: (answers / own).unlink(), "its answers are in no folder of --answers; "),
    "another submission": (
        lambda answers, own, other: shutil.copy(answers / other, answers / own),
        "has the answers of another submission; copy it again",
    ),
    "cut": (lambda answers, own, other: (answers / own).write_bytes(b"[1"), "is damaged; copy it again"),
    "cut later": (
        lambda answers, own, other: (answers / own).write_bytes((answers / own).read_bytes()[:-20]),
        "its answers do not hold all that it is asked; `grade` without --answers asks it here",
    ),
    "another seed": (
        lambda answers, own, other: spoil(answers, own, lambda stated: stated.update(seed=1)),
        "answers hidden cases of another secret; grade it with that of this course",
    ),
    "another suite": (
        lambda answers, own, other: spoil(answers, own, lambda stated: stated.update(asked="x")),
        "was written with another suite, or with other limits, another Python or another torch; ",
    ),
}


@pytest.mark.parametrize("how", SPOILED)
def test_answers_that_are_no_ones_are_named_and_nobody_else_suffers(class_of_four, tmp_path: Path, how: str) -> None:
    suite, (ada, alan, *_), folder = class_of_four
    answers = Path(shutil.copytree(folder / "part-0" / ANSWERS, tmp_path / "answers"))
    change, said = SPOILED[how]
    change(answers, take_in(ada).sha256, take_in(alan).sha256)
    done = grade(suite, NoSandbox(), [ada, alan], tmp_path / "out", How(answers=(answers,)))
    assert done.faults.keys() == {"ada.py"}
    assert said in done.faults["ada.py"]
    assert "\n" not in done.faults["ada.py"]
    assert (tmp_path / "out" / "alan.py" / "feedback.md").exists()


def test_who_answered_twice_and_not_the_same_is_named(class_of_four, sandbox: Sandbox, tmp_path: Path) -> None:
    suite, (ada, *_), _ = class_of_four
    (tmp_path / "eve.py").write_text(
        "import os, torch\ndef run_softmax(*a, **b): return torch.tensor([*os.urandom(9)])"
    )
    for part in ("a", "b"):
        grade(suite, sandbox, [tmp_path / "eve.py", ada], tmp_path / part)
    answers = (tmp_path / "a" / ANSWERS, tmp_path / "b" / ANSWERS)
    done = grade(suite, NoSandbox(), [tmp_path / "eve.py", ada], tmp_path / "out", How(answers=answers))
    assert done.faults.keys() == {"eve.py"}
    assert done.faults["eve.py"].startswith("it answered twice, and not the same: delete one of ")
