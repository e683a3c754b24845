"""No attack earns a point that it did not earn honestly, and none harms the grader or another submission."""

import platform
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from staff.tests.attacks.attack import Attack, list_attacks
from staff.tests.attacks.grade import TESTS
from staff.tests.attacks.plain import Outcome
from whichline_grader.grading.graded import Grading

pytestmark = pytest.mark.slow

MAX_REPORT_BYTES = 300_000
# Some of each catalogue, for each change; by night all of them run.
AT_EACH_CHANGE = {
    *("frame_walk", "spells_inputs", "forged_reply", "os_exit_at_import", "strange_text"),
    *("exec_true", "fork_bomb", "read_hidden_suite", "read_other_submissions", "signal_the_grader", "tcp"),
    *("loop", "output_flood", "write_anywhere"),
    *("answers_ahead", "lying_tensor", "prints_hidden_inputs", "steals_questions"),
    *("exploding_archive", "public_answers", "shadowed_libraries"),
}

ATTACKS = list_attacks()
NAMED = [
    pytest.param(each, marks=() if each.id in AT_EACH_CHANGE else pytest.mark.nightly, id=each.name) for each in ATTACKS
]
each_attack = pytest.mark.parametrize("attack", NAMED)


def skip_elsewhere(attack: Attack) -> None:
    if attack.machine not in ("", platform.machine()):
        pytest.skip(f"written for {attack.machine}")


@each_attack
def test_an_attack_earns_nothing_and_is_reported(attack: Attack, results: Path, gradings: dict[str, Grading]) -> None:
    skip_elsewhere(attack)
    grading = gradings[attack.name]
    passed = {result.test for result in grading.results if result.passed}
    public = {test for test in TESTS if test.startswith("test_softmax[")}  # students have these answers
    if attack.id == "counted_calls":  # who gives them in some order is right now and then
        assert passed < public
    else:
        assert passed == (public if attack.id == "public_answers" else set())
    feedback = (results / attack.name / "feedback.md").read_text()
    assert attack.report in feedback
    assert "whichline_grader/grading" not in feedback
    assert "reached" not in grading.notes.stdout.split()


@each_attack
def test_an_honest_submission_after_it_gets_what_it_earned(attack: Attack, gradings: dict[str, Grading]) -> None:
    neighbour = gradings[attack.neighbour]
    assert {result.test: result.outcome for result in neighbour.results} == dict.fromkeys(TESTS, "passed")


@each_attack
def test_a_report_stays_small(attack: Attack, results: Path, gradings: dict[str, Grading]) -> None:
    sizes = {path.name: path.stat().st_size for path in (results / attack.name).iterdir()}
    assert sizes.keys() == {"results.json", "feedback.md"}
    assert max(sizes.values()) < MAX_REPORT_BYTES
    assert sum(len(result.staff or result.text) for result in gradings[attack.name].results) < MAX_REPORT_BYTES


@pytest.mark.nightly  # only another Python or torch can change it
@each_attack
def test_an_attack_works_where_nothing_stops_it(attack: Attack, plain: dict[str, Outcome]) -> None:
    skip_elsewhere(attack)
    assert plain[attack.name] == attack.plain


def test_every_submission_has_its_own_report(results: Path, gradings: dict[str, Grading]) -> None:
    assert {attack.id for attack in ATTACKS} >= AT_EACH_CHANGE
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 40
    assert {path.name for path in results.iterdir() if path.is_dir()} - {"answers"} == gradings.keys()


def test_the_gradebook_is_whole(results: Path) -> None:
    with closing(sqlite3.connect(results / "gradebook.sqlite")) as gradebook:
        assert gradebook.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert gradebook.execute("SELECT json_array_length(tests) FROM list").fetchall() == [(len(TESTS),)]


def test_nothing_is_left_behind(results: Path) -> None:
    places = [Path(place) for place in ("/tmp", "/dev/shm", "/var/tmp", "/run", tempfile.gettempdir())]  # noqa: S108
    assert not [path for place in places for path in place.glob("cs336-attack*")]
    assert not list(results.parent.rglob("cs336-attack*"))
