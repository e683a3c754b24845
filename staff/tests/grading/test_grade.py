"""`cs336 staff grade`, from the outside: one batch of right, wrong and hostile submissions."""

import json
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from staff.tests.files import copy_tree, leave_out, rows_of
from staff.tests.grading.conftest import run_staff
from staff.tests.grading.shadow_class import MAXIMUM
from staff.tools.student import ROOT, write_submission
from whichline.engine.assignment import load_problems
from whichline_grader.sandbox.submission import take_in

# This course does without the bonus problems that take longest.
LEFT_OUT = ("multihead_attention", "blockwise_attention", "decoding")
MOST = MAXIMUM + load_problems(ROOT)["attention_module"].points

pytestmark = pytest.mark.slow

# What each submission adds to the solved adapters.
SUBMISSIONS = {
    "right": "",
    "wrong-dim": "def run_softmax(in_features, dim):\n    return torch.softmax(in_features, 0)\n"
    "def run_linear(d_in, d_out, weights, in_features):\n"
    "    print('saw', tuple(in_features.shape))\n    return in_features @ weights.T\n"
    "def run_rope(*arguments, **more):\n    raise NotImplementedError",
    "spells": "def run_softmax(in_features, dim):\n    raise ValueError(f'secret {in_features.tolist()}')\n"
    "def run_linear(d_in, d_out, weights, in_features):\n"
    "    raise type(f'secret{weights.numel()}', (Exception,), {})\n"
    "first = []\ndef run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):\n"
    "    first.append(in_query_or_key)\n    return first[0]",
    "spells-frames": "import os, struct\nright_linear = run_linear\n"
    "def run_linear(d_in, d_out, weights, in_features):\n"
    "    spelled = 'secret %d %s' % (weights.numel(), chr(92) + 'ud800')\n"
    "    header = ('{\"token\": \"' + spelled + '\"}').encode()\n"
    "    os.write(3, struct.pack('<IQ', len(header), 0) + header)\n"
    "    return right_linear(d_in, d_out, weights, in_features)",
    "forbidden": "def run_linear(d_in, d_out, weights, in_features):\n"
    "    return torch.nn.functional.linear(in_features, weights)",
    "shared": "def run_softmax(in_features, dim):\n    return torch.softmax(in_features, dim)\n"
    "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n"
    "    scores = Q @ K.mT / Q.shape[-1] ** 0.5\n"
    "    hidden = torch.zeros_like(scores) if mask is None else torch.where(mask, 0.0, -torch.inf)\n"
    "    return run_softmax(scores + hidden, -1).nan_to_num(0.0) @ V",
    "behaves-at-first": "calls = []\nright_attention = run_scaled_dot_product_attention\n"
    "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    calls.append(0)\n"
    "    return (right_attention if len(calls) < 9 else by_torch)(Q, K, V, mask)\n"
    "def by_torch(Q, K, V, mask):\n"
    "    getattr(torch, 'soft' + 'max')(Q, -1)\n    return right_attention(Q, K, V, mask)",
    "no-scale": "from cs336_basics.nn import functional\nright_scores = functional.attention_scores\n"
    "def scores(Q, K, mask=None):\n    return right_scores(Q * Q.shape[-1] ** 0.5, K, mask)\n"
    "functional.attention_scores = scores",
    # The function that is forbidden is no function of Python: no line is known, and its source is listed.
    "returns-none": "def run_softmax(in_features, dim):\n    pass\n"
    "def run_rope(*arguments, **more):\n    return [1, 2]\n"
    "def run_linear(d_in, d_out, weights, in_features):\n"
    "    return torch._C._jit_get_operation('aten::linear')[0](in_features, weights)",
    "exits": "import os\ndef run_rope(*arguments, **more):\n    os._exit(0)",
    "syntax-error": "def run_softmax(:",
}


@dataclass(frozen=True)
class Graded:
    """The folder of results, and what the command printed, with single spaces."""

    out: Path
    printed: str

    def results(self, name: str) -> dict[str, Any]:
        return json.loads((self.out / name / "results.json").read_text())

    def feedback(self, name: str) -> str:
        return (self.out / name / "feedback.md").read_text()

    def points(self, name: str, problem: str) -> float:
        return sum(test["extra_data"]["points"] for test in self.results(name)["tests"] if test["tags"][0] == problem)

    def grades(self) -> dict[str, dict[str, str]]:
        return {row["student"]: row for row in rows_of(self.out / "grades.csv")}

    def outputs(self, name: str, hidden: bool) -> str:
        return "\n".join(t["output"] for t in self.results(name)["tests"] if t["extra_data"]["hidden"] == hidden)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("course")
    copy_tree(tree)
    leave_out(tree, *LEFT_OUT)
    return tree


@pytest.fixture(scope="module")
def graded(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Graded:
    folder = tmp_path_factory.mktemp("submissions")
    paths = [write_submission(folder / name, addition) for name, addition in SUBMISSIONS.items()]
    with zipfile.ZipFile(folder / "bomb <b>.zip", "w") as archive:
        archive.writestr("../adapters.py", "")
    out = folder / "results"
    printed = run_staff(course, "grade", *paths, folder / "bomb <b>.zip", "--out", out, "--jobs", 2, "-v")
    return Graded(out, " ".join(printed.split()))


def test_a_right_submission_gets_full_marks(graded):
    results = graded.results("right")
    assert (results["extra_data"]["maximum"], results["score"]) == (MAXIMUM, MOST)
    assert {test["status"] for test in results["tests"]} == {"passed"}
    assert graded.feedback("right").startswith(f"# `right`: {MOST:.2f} of {MAXIMUM:g} points")


def test_the_maximum_is_the_same_whatever_a_submission_did(graded):
    everything = {len(graded.results(name)["tests"]) for name in SUBMISSIONS}
    for name in [*SUBMISSIONS, "bomb_b_"]:
        results = graded.results(name)
        assert results["extra_data"]["maximum"] == MAXIMUM
        assert sum(test["max_score"] for test in results["tests"]) == pytest.approx(MOST, abs=0.05)
        assert {len(results["tests"])} == everything


@pytest.mark.parametrize(
    ("name", "problem", "least", "most"),
    [
        ("wrong-dim", "softmax", 0, 1),
        ("wrong-dim", "scaled_dot_product_attention", 5, 5),
        # A wrong attention is paid for once.
        ("no-scale", "scaled_dot_product_attention", 0, 1),
        ("no-scale", "multihead_self_attention", 5, 5),
        ("forbidden", "linear", 0, 0),
        ("forbidden", "multihead_self_attention", 5, 5),
        ("returns-none", "linear", 1, 1),
        ("shared", "softmax", 0, 0),
        ("shared", "scaled_dot_product_attention", 4.5, 5),
        # They leave their inputs alone, and that is a public test.
        ("returns-none", "softmax", 0.026, 0.026),
        ("returns-none", "rope", 0.025, 0.025),
        ("spells", "rope", 0, 0.2),
        # A dead worker costs the tests that it was to answer.
        ("exits", "rope", 0, 0),
        ("exits", "softmax", 2, 2),
        ("exits", "multihead_self_attention", 5, 5),
    ],
)
def test_a_fault_costs_the_points_of_its_tests_and_no_others(graded, name, problem, least, most):
    assert least - 1e-4 <= graded.points(name, problem) <= most + 1e-4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wrong-dim", "the answer is wrong in"),
        ("wrong-dim", "Expected the softmax"),
        ("returns-none", "is a `return` missing?"),
        ("exits", "the process ended"),
        ("syntax-error", "SyntaxError"),
        ("syntax-error", "adapters.py:"),
        ("wrong-dim", "not implemented yet: write run_rope in adapters.py"),
        ("forbidden", "torch.nn.functional.linear in adapters.py:"),
        ("shared", "softmax: -2.00 points for softmax. Write this yourself, without:\ntorch.softmax in adapters.py:"),
    ],
)
def test_feedback_says_what_is_wrong(graded, name, text):
    assert text in graded.feedback(name)


# A work is charged once, to the first problem that runs it, and what only later calls do is seen.
@pytest.mark.parametrize(
    ("name", "problem", "points"),
    [("forbidden", "linear", 1), ("shared", "softmax", 2), ("behaves-at-first", "scaled_dot_product_attention", 2)],
)
def test_a_work_is_charged_to_the_first_problem_that_runs_it(graded, name, problem, points):
    assert f"{problem}: -{points:.2f} points for " in graded.feedback(name)
    assert graded.printed.count(f"VIOLATION: {name}, ") == 1
    assert f"VIOLATION: {name}, {problem}: torch." in graded.printed
    earned = sum(test["score"] for test in graded.results(name)["tests"])
    assert earned == pytest.approx(graded.results(name)["score"], abs=0.1)  # each box has two digits


def test_what_two_machines_stored_gives_the_same_feedback_and_nothing_runs(course, graded, tmp_path):
    """That all else is the same, test_transcripts.py shows with a smaller suite."""
    names = ["wrong-dim", "syntax-error"]
    for name in names:
        (tmp_path / name).mkdir()
        shutil.copy(graded.out / "answers" / take_in(graded.out.parent / name).sha256, tmp_path / name)
    paths, stored = [graded.out.parent / name for name in names], [tmp_path / name for name in names]
    said = run_staff(course, "grade", *paths, "--out", tmp_path / "merged", "--answers", *stored)
    assert "\nNo submission runs\n" in said
    for name in names:
        assert (tmp_path / "merged" / name / "feedback.md").read_text() == graded.feedback(name)


@pytest.mark.parametrize(
    ("name", "public", "hidden"),
    [
        ("spells", "secret [", "ValueError in run_softmax of adapters.py"),
        ("spells", "secret35", "an exception"),
        ("spells-frames", "does not have the token of its question", "something other than the grader wrote this"),
    ],
)
def test_words_of_a_submission_are_shown_in_public_tests_only(graded, name, public, hidden):
    assert public in graded.outputs(name, hidden=False)
    assert hidden in graded.outputs(name, hidden=True)
    assert "secret" not in graded.outputs(name, hidden=True)


def test_staff_overrule_a_violation_and_take_it_back(course, graded, tmp_path):
    out = tmp_path / "results"
    shutil.copytree(graded.out, out)
    copy = Graded(out, "")
    for arguments in (("linear", "--because", "agreed in week 2"), ("--because", "agreed in week 2")):
        said = run_staff(course, "adjust", "forbidden", *arguments, "--waive", "--out", out)
        assert f"forbidden: {MOST:.2f} of {MAXIMUM:g} points, " in said
    assert copy.results("forbidden")["score"] == MOST
    assert "linear: counted by staff: agreed in week 2" in copy.feedback("forbidden")
    forbidden = copy.grades()["forbidden"]
    assert forbidden | {"notes": "linear: counted by staff: agreed in week 2"} == forbidden
    assert copy.grades()["shared"] == graded.grades()["shared"]
    (out / "decisions.toml").unlink()
    run_staff(course, "rescore", "--out", out)
    assert copy.results("forbidden")["score"] == MOST - 1


def test_a_hidden_failure_shows_shapes_and_no_values(graded):
    hidden = graded.outputs("wrong-dim", hidden=True)
    assert "the case is softmax/3d-middle-dim:\n  in_features  (" in hidden
    assert ": got " not in hidden


def test_what_was_found_is_counted(graded):
    counts = {row["finding"]: row["submissions"] for row in rows_of(graded.out / "findings.csv")}
    assert counts["softmax-softmax"] == "1"
    assert "What costs the class most" in graded.printed


def test_a_students_page_shows_measured_weights_and_nothing_that_spells_a_hidden_input(course, graded, tmp_path):
    shutil.copy(graded.out / "gradebook.sqlite", tmp_path)
    assert f"reports on {len(SUBMISSIONS) + 1} submissions: their pages are in" in run_staff(course, "report", tmp_path)
    pages = {path.name: path.read_text() for path in (tmp_path / "students").iterdir()}
    assert "weights of your attention" not in pages["right.html"]
    assert "They differ most for query 5 and key 2" in pages["no-scale.html"]  # see test_weights.py
    assert "no usable output" in pages["syntax-error.html"]
    assert "secret35" in pages["spells.html"]  # the public case 2d
    public = graded.results("spells")["output"] + graded.outputs("spells", hidden=False)
    for text in (pages["spells.html"], graded.feedback("spells")):
        assert set(re.findall(r"secret\d+", text)) <= set(re.findall(r"secret\d+", public))
    for text in (pages["wrong-dim.html"], graded.feedback("wrong-dim"), graded.results("wrong-dim")["output"]):
        assert "saw (3, 5)" in text  # the public case 2d
        assert "saw (11,)" not in text  # the hidden case vector
    assert (tmp_path / "index.html").read_text().count("refused, not run") == 1


def test_a_refused_archive_gets_no_points_and_the_reason(graded):
    results = graded.results("bomb_b_")
    assert results["score"] == 0
    assert "expected paths inside the submission" in results["output"]
    assert '"submission": "bomb_b_", "what": "refused"' in graded.printed  # as in the log


def test_grades_csv_has_a_row_for_each_submission(graded):
    rows = graded.grades()
    assert (rows["right"]["points"], rows["right"]["maximum"]) == (f"{MOST:g}", f"{MAXIMUM:g}")
    assert (rows["forbidden"]["violations"], len(rows)) == ("1", len(SUBMISSIONS) + 1)


def test_a_second_run_grades_nothing_again_and_mends_the_reports(course, graded, tmp_path):
    out = tmp_path / "results"
    shutil.copytree(graded.out, out)
    (out / "right" / "results.json").unlink()
    paths = [graded.out.parent / name for name in SUBMISSIONS]
    said = run_staff(course, "grade", *paths[::-1], "--out", out, "--answers", out / "answers", "-v")
    assert said.count('"what": "graded before"') == len(paths)
    for report in graded.out.glob("*/*.*"):
        assert (out / report.relative_to(graded.out)).read_text() == report.read_text()
