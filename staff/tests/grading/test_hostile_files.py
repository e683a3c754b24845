"""Files and names that are made to hurt: they stop nobody, and change nobody's grade but their own."""

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from staff.tests.files import write_files
from staff.tests.grading.test_grades import COURSE, grade_in_batch
from whichline_grader.grading.graded import Grading
from whichline_grader.grading.identity import RosterError
from whichline_grader.sandbox.files import MAX_PATH, MIB
from whichline_grader.sandbox.reader import SECONDS

HONEST = b"def run_softmax(x, dim):\n    return x\n"
DATE, FILE = "2026-10-01-23-58-01", "assignsubmission_file"


def graded(folder: Path, *paths: Path, **stated: Any) -> dict[str, Grading]:
    """Grade them as `grade_in_batch` does; the gradings, by the name of the file."""
    with grade_in_batch(folder, *paths, **stated) as gradebook:
        return {Path(grading.path).name: grading for grading in gradebook.latest()}


def keys(found: Mapping[str, Grading]) -> list[str]:
    return [student.key for grading in found.values() for student in grading.handed_in.students]


def handed_in(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    write_files(folder / "in", files)
    return [folder / "in" / name for name in files]


def newlines() -> tuple[str, bytes]:
    """Only newlines, 8 MiB of them in 8 KB, for an expression that looks for an import after each."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("adapters.py", HONEST + b"\n" * (8 * MIB - 100))
    return "newlines.zip", file.getvalue()


def header(kind: bytes, name: str, data: bytes) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, len(data)
    return entry.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def digits() -> tuple[str, bytes]:
    """A header of digits in a tar archive, in which `tarfile` looks for numbers from each of them on."""
    return "digits.tar", header(b"x", "pax", b"1" * 160_000) + header(b"0", "adapters.py", HONEST) + bytes(1024)


def sparse() -> tuple[str, bytes]:
    """The list of the holes in a file of 31 MiB, in an archive of 32 KB: `tarfile` reads it number for number."""
    about = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n33 GNU.sparse.name=adapters.py\n25 GNU.sparse.realsize=1\n"
    holes = b"%d\n" % (31 * MIB) + b"1\n" * (31 * MIB // 2)
    return "sparse.tar.gz", gzip.compress(header(b"x", "pax", about) + header(b"0", "adapters.py", holes))


@pytest.mark.parametrize("file", [newlines, digits, sparse])
def test_a_small_file_stops_no_class(file: Callable[[], tuple[str, bytes]], tmp_path: Path) -> None:
    name, content = file()
    assert len(content) < MIB
    paths = handed_in(tmp_path, {name: content, "ada.py": HONEST})
    before = sum(os.times()[:4])  # of the processor, in this process and those that have ended
    found = graded(tmp_path, *paths)
    assert sum(os.times()[:4]) - before < 2 * SECONDS
    assert found["ada.py"].points == 3
    refused = found[name].notes.refused
    assert not refused or f"took more than {SECONDS} s of processor time to read; put your code into" in refused
    assert bool(refused) == (found[name].points == 0)


def test_folders_in_folders_stop_no_class(tmp_path: Path) -> None:
    (ada,) = handed_in(tmp_path, {"ada.py": HONEST})
    deep = os.open(tmp_path / "in", os.O_RDONLY)
    for _ in range(1200):  # one call for each: their path would be too long for the system
        os.mkdir("deep", dir_fd=deep)
        inside = os.open("deep", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inside
    os.close(deep)
    try:
        found = graded(tmp_path, tmp_path / "in" / "deep", ada)
    finally:
        subprocess.run(["rm", "-r", tmp_path / "in" / "deep"], check=True)  # too deep for those who tidy up
    assert found["ada.py"].points == 3
    assert f"expected printable paths of at most {MAX_PATH} characters" in found["deep"].notes.refused


def test_a_module_with_a_long_name_gives_no_file_a_path_that_is_too_long_to_be_sent(tmp_path: Path) -> None:
    long = b"from cs336_basics." + b"a" * 2 * MIB + b".adapters import x\n"
    (grading,) = graded(tmp_path, *handed_in(tmp_path, {"long.py": long})).values()
    assert grading.points == 3


# What student 77 handed in, and what student 55 did, whose own part of the name begins after the prefix.
STOLEN = {
    # What a student could do while the form of Moodle was tried first.
    "canvas-as-moodle": ("honestann_77_1001_adapters.py", f"mallory_55_1002_x_77_{FILE}_notes.py"),
    "canvas-as-blackboard": ("honestann_77_1001_adapters.py", f"mallory_55_1002_x_77_attempt_{DATE}_notes.py"),
    "moodle-twice": (f"Ann Honest_77_{FILE}_adapters.py", f"Mallory_55_{FILE}_x_77_{FILE}_notes.py"),
    "blackboard-twice": (f"HW_77_attempt_{DATE}_adapters.py", f"HW_55_attempt_{DATE}_x_77_attempt_{DATE}_notes.py"),
}


@pytest.mark.parametrize("names", STOLEN.values(), ids=STOLEN)
@pytest.mark.parametrize("suffix", [".py", ".zip", "\n.py"])
def test_a_name_is_no_claim_to_the_work_of_another(names: tuple[str, str], suffix: str, tmp_path: Path) -> None:
    honest, mallory = names[0], names[1].removesuffix(".py") + suffix
    found = graded(tmp_path, *handed_in(tmp_path, {honest: HONEST, mallory: b"#" * (9 * MIB)}))
    assert found.keys() == {honest, mallory}
    assert (found[honest].points, found[mallory].points) == (3, 0)
    assert keys({name: found[name] for name in (honest, mallory)}) == ["77", "55"]


def test_a_name_in_two_forms_alone_is_decided_by_staff(tmp_path: Path) -> None:
    (path,) = handed_in(tmp_path, {STOLEN["canvas-as-blackboard"][1]: HONEST})
    with pytest.raises(RosterError, match=r'as Canvas and Blackboard name .* `platform = "canvas"` or .*course.toml'):
        graded(tmp_path, path)
    assert keys(graded(tmp_path, path, course=replace(COURSE, platform="canvas"))) == ["55"]


def test_every_folder_is_a_download_from_one_platform(tmp_path: Path) -> None:
    submission = b"submission_9:\n  :submitters:\n  - :name: Kurt\n    :sid: '3'\n"
    downloads: dict[str, dict[str, bytes]] = {
        "canvas": {"lovelaceada_1_11_x.py": HONEST},
        "moodle": {f"Alan Turing_2_{FILE}_x.py": HONEST},
        "gradescope": {"submission_9.py": HONEST, "submission_metadata.yml": submission},
        "mail": {"emmy.py": HONEST},
    }
    paths = [path for name, files in downloads.items() for path in handed_in(tmp_path / name, files)]
    assert {*keys(graded(tmp_path, *paths))} == {"1", "2", "3", "emmy"}


def test_where_students_name_their_files_a_platforms_form_is_no_proof(tmp_path: Path) -> None:
    found = graded(tmp_path, *handed_in(tmp_path, dict.fromkeys(("ada.py", "alan.py", "x_77_1_y.py"), HONEST)))
    assert {*keys(found)} == {"ada", "alan", "x_77_1_y"}
    assert not any(grading.notes.taken_in for grading in found.values())


@pytest.mark.parametrize("stated", ["", "none"])
def test_metadata_that_a_student_hands_in_is_not_read(stated: str, tmp_path: Path) -> None:
    metadata = b"ada.py:\n  :submitters:\n  - :name: Mallory\n    :sid: '55'\n"
    ada, _ = handed_in(tmp_path, {"ada.py": HONEST, "submission_metadata.yml": metadata})
    assert keys(graded(tmp_path, ada, course=replace(COURSE, platform=stated))) == ["ada"]


def test_a_name_that_the_platform_does_not_give_is_a_submission_of_its_own_and_said_so(tmp_path: Path) -> None:
    names = ("lovelaceada_1_11_x.py", "turingalan_2_12_x.py", "late by mail.py")
    found = graded(tmp_path, *handed_in(tmp_path, dict.fromkeys(names, HONEST)))
    own = found.pop("late by mail.py")
    assert [student.key for student in own.handed_in.students] == ["late_by_mail"]
    said = "is not a name that Canvas gives: it is a submission of its own, under the name of its file"
    assert own.notes.taken_in == (f"'late by mail.py' {said}",)
    assert not any(grading.notes.taken_in for grading in found.values())


def test_submissions_of_one_name_get_names_of_their_own(tmp_path: Path) -> None:
    """Two of one name, and one that is called as the first of them could be."""

    def hashed(path: Path) -> str:
        return f"{path.name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"

    paths = [tmp_path / "a" / "same", tmp_path / "b" / "same"]
    paths.append(tmp_path / hashed(paths[0]))
    for path in paths:
        write_files(path, {"adapters.py": HONEST})
    graded(tmp_path, *paths)
    reports = {path.parent.name for path in (tmp_path / "results").glob("*/results.json")}
    assert reports == {hashed(path) for path in paths}


@pytest.mark.parametrize(
    "names",
    [
        ("dumasdi_222_7_adapters.py", "dumasdi_222_8_functional.zip"),
        ("dumasdi_222_7_adapters.py", "dumasdi_222_8_adapters-1.py"),
        ("dumasdi_222_7_one.zip", "dumasdi_222_8_other.zip"),
        ("dumasdi_222_7_functional.py", "dumasdi_222_8_model.py"),
    ],
)
def test_one_student_whose_files_do_not_fit_is_refused_and_nobody_else(names: tuple[str, str], tmp_path: Path) -> None:
    found = graded(tmp_path, *handed_in(tmp_path, dict.fromkeys(("lovelaceada_1_11_x.py", *names), HONEST))).values()
    honest, refused = sorted(found, key=lambda each: each.notes.refused)
    assert honest.results[0].passed
    assert refused.notes.refused.startswith("expected one archive, or adapters.py and other Python files, got ")
    assert refused.notes.taken_in == (f"taken together as one submission: {names[0]!a}, {names[1]!a}",)
