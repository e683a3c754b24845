"""Hidden inputs come from a secret: nobody without it knows them, and a suite of two releases is refused."""

import hashlib
import shutil
from pathlib import Path

import pytest

from problems.softmax.staff import SPEC
from staff.tests import ROOT
from staff.tests.files import write_files
from whichline.engine.suite import Calls, Suite
from whichline.engine.toml_file import AssignmentError
from whichline_grader.grading.course import Course
from whichline_grader.grading.suite import GradedSuite, check_hidden_cases, check_public_cases
from whichline_grader.hidden import release
from whichline_grader.hidden.release import REHEARSAL, Release, load_release
from whichline_grader.sandbox.proxy import Adapters


def test_a_seed_says_nothing_about_another() -> None:
    one, other = Release(b"one"), Release(b"other")
    names = ["softmax/1d", "softmax/2d", "linear/1d", "linear/2d"]
    seeds = [each.seed(name) for each in (one, other) for name in names]
    assert len({*seeds}) == len(seeds)
    assert seeds[0] ^ seeds[1] ^ seeds[2] ^ seeds[3] != 0  # as of a checksum, which is linear
    assert max(seeds) < 2**63  # a database takes it


@pytest.fixture
def course(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a course, and a course.toml that names it."""
    folder = write_files(tmp_path / "course", {"secret.txt": "abc\n"})
    course = tmp_path / "course.toml"
    monkeypatch.setattr(release, "COURSE", course)
    course.write_text(f'folder = "{folder}"\nsecret_sha256 = "{hashlib.sha256(b"abc").hexdigest()}"\n')
    return folder


def test_without_a_course_it_is_a_rehearsal(course: Path) -> None:
    (course.parent / "course.toml").write_text('column = "Attention"\n')
    assert load_release() == REHEARSAL == Release(b"anyone can read this")
    assert load_release().cases == ROOT / "staff" / "fixtures"


def test_a_course_has_its_own_secret_and_cases(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_release() == Release(b"abc", course)
    assert load_release().cases == course / "hidden"
    stated = (course.parent / "course.toml").read_text()
    monkeypatch.setenv("HOME", str(course.parent))
    for folder in ("~/course", "course"):  # beside course.toml
        (course.parent / "course.toml").write_text(stated.replace(str(course), folder))
        assert load_release() == Release(b"abc", course)


@pytest.mark.parametrize("key", ["folder", "secret_sha256"])
def test_the_folder_and_the_hash_of_its_secret_go_together(course: Path, key: str) -> None:
    (course.parent / "course.toml").write_text(f'column = "A"\n{key} = "x"\n')
    with pytest.raises(AssignmentError, match=f"course.toml:2: {key} is set alone; folder and secret_sha256 go tog"):
        load_release()


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """The hidden cases of the rehearsal, to be damaged."""
    return shutil.copytree(ROOT / "staff" / "fixtures", tmp_path / "hidden")


def test_hidden_cases_of_another_release_are_refused(cases: Path) -> None:
    check_hidden_cases(Release(REHEARSAL.secret, cases.parent))
    said = "not drawn from this release's secret; run `uv run cs336 staff verify --write`"
    with pytest.raises(AssignmentError, match=said):
        check_hidden_cases(Release(b"abc", cases.parent))


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x" * 100)])
def test_a_hidden_case_that_is_missing_or_damaged_is_named(cases: Path, damage) -> None:
    damage(cases / f"{SPEC.hidden[5].name}.safetensors")
    said = f"the hidden case {SPEC.hidden[5].name} is missing from {cases} or damaged; run"
    with pytest.raises(AssignmentError, match=said):
        check_hidden_cases(Release(REHEARSAL.secret, cases.parent))


def test_a_public_case_that_is_missing_is_named(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fixtures", tmp_path / "fixtures")
    check_public_cases(tmp_path)
    (tmp_path / "fixtures/softmax/1d.safetensors").unlink()
    message = r"^fixtures/softmax/1d.safetensors is missing; run `uv run cs336 staff verify --write`$"
    with pytest.raises(AssignmentError, match=message):
        check_public_cases(tmp_path)


def test_other_hidden_cases_give_another_key(cases: Path) -> None:
    def key() -> str:
        suite = Suite(ROOT, {}, [], Calls())
        return GradedSuite(suite, Adapters(ROOT / "adapters.py"), {}, Release(b"", cases.parent), Course()).sha256

    before = key()
    assert key() == before
    with (cases / f"{SPEC.hidden[5].name}.safetensors").open("ab") as file:
        file.write(b" ")
    assert key() != before
