"""A semester, tried whole: handout, submissions, a grading that is cut off, late work, a copy, a wrong weight.

    uv run python -m cs336_staff.examples.semester FOLDER --students 40

It runs the commands of cs336_staff/docs/running-a-course.md on a simulated class, in a copy of this tree, and leaves
everything in FOLDER for you to look at. After each step every grade is compared with what `simulated_class.py` says
that it should be.
"""

import csv
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from glob import glob
from itertools import chain
from pathlib import Path

import click

from cs336_staff.examples.simulated_class import (
    ALL,
    EXTENDED,
    LATE,
    MAILED,
    PROGRAMS,
    ROOT,
    TWO_DAYS_LATE,
    Student,
    Work,
    make_class,
)

COURSE = """\
due = 2026-10-01T23:59:00Z
attempt = "best"
roster = "roster.csv"
[late]
free_days = 1
percent = 10
[extensions]
1002 = 2026-10-05T23:59:00Z
"""
ROSTER = "Student,ID,SIS User ID,SIS Login ID,Section,Attention\n"
ROUNDING = 0.011  # points.md has two places


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--students", default=40, show_default=True, type=click.IntRange(12, 40))
@click.option("--handout", type=click.Path(exists=True, path_type=Path), help="The OUT of `cs336 staff handout`.")
def semester(folder: Path, students: int, handout: Path | None) -> None:
    """Try a semester with a simulated class in FOLDER, which is empty or does not exist yet."""
    folder = folder.resolve()
    course, results = folder / "course", folder / "results"
    if folder.exists() and any(folder.iterdir()):
        raise click.ClickException(f"{folder} is not empty; name another")

    _say("Before the semester: what students receive. Look at handout/tree.")
    _copy_tree(course)
    if handout is None:
        _staff(course, "handout", "../handout")

    _say("The deadline has passed. Look at week-1: what Canvas, Gradescope and the mail brought.")
    (folder / "written").mkdir()
    group = make_class((handout or folder / "handout") / "tree", folder / "written", students)
    for student in group:
        student.hand_in(folder / "week-1")
        most = "at most " if student.work.hostile else ""
        click.echo(f"{' and '.join(student.keys):>13}: {student.work.what}: {most}{student.work.points:.2f} points")
    everyone = [key for student in group for key in student.keys if student.number != MAILED]
    (course / "cs336_staff/course.toml").write_text(COURSE)
    (course / "cs336_staff/roster.csv").write_text(ROSTER + "".join(f"student {key},{key},,,,\n" for key in everyone))

    _say("Grading, and a power cut when half of the class is graded.")
    grade = ("grade", "../week-1/*/*", "--out", "../results", "--jobs", "2")
    grading = _start(course, *grade)
    while (done := len(list(results.glob("*/results.json")))) < students / 2:
        if grading.poll() is not None:
            raise click.ClickException(f"grading ended with status {grading.returncode} when {done} were graded")
        time.sleep(0.05)
    grading.send_signal(signal.SIGKILL)
    grading.wait()
    kept = _graded(results)
    click.echo(f"Killed when {len(kept)} of {students} were graded.")

    _say("The same command again. Look at grades.csv and findings.csv, and at a feedback.md as its student would.")
    _staff(course, *grade)
    if not (len(kept) < students == len(_graded(results)) and kept < _graded(results)):
        raise click.ClickException(f"{len(kept)} of {students} were graded before the cut; some were graded twice")
    _check(group, results)

    _say("A week later two hand in again: one two days late, of which one is free; the other has an extension.")
    for number, penalty in ((LATE, 0.1), (EXTENDED, 0.0)):
        group[number - 1] = Student(number, Work("handed in again", PROGRAMS[-1], ALL), penalty)
        group[number - 1].hand_in(folder / "week-2", TWO_DAYS_LATE)
    _staff(course, "grade", "../week-2/*/*", "--out", "../results")
    _check(group, results)

    _say("Pages for people. Look at index.html, and at a page in students.")
    _staff(course, "report", "../results")

    _say("One has copied. Look at similar.html, and talk to both before you conclude anything.")
    _staff(course, "similar", "../week-1/*/*", "--out", "../results")
    first = re.search(r"<summary>.*</summary>", (results / "similar.html").read_text())
    if not first or any(f"_{each.keys[0]}" not in first[0] for each in group if "01_flat_files" in each.work.what):
        raise click.ClickException(f"expected the copy to be the most alike, got {first and first[0]}")

    _say("Softmax should have been worth 3 points and not 2: no submission runs again. Look at the reasons of diff.")
    shutil.copytree(results, folder / "before")
    problems = course / "assignment.toml"
    problems.write_text(problems.read_text().replace("points = 2", "points = 3", 1))
    _staff(course, "rescore", "--out", "../results")
    _staff(course, "diff", "../before", "../results")
    _check(group, results, softmax=3 / 2)


def _copy_tree(course: Path) -> None:
    """Copy what git knows of this tree, and the secret of the hidden cases, if there is one."""
    known = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in [*filter(None, known.split("\0")), "cs336_staff/hidden/secret.txt"]:
        if (ROOT / name).exists():
            (course / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, course / name)
    for command in (("init", "--quiet"), ("add", "--all")):
        subprocess.run(("git", *command), cwd=course, check=True)


def _start(course: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start `cs336 staff` with `command`, in which patterns stand for files."""
    click.secho(f"$ uv run cs336 staff {' '.join(command)}", bold=True)
    words = chain.from_iterable(sorted(glob(word, root_dir=course)) or [word] for word in command)
    return subprocess.Popen((sys.executable, "-m", "cs336_kit", "staff", *words), cwd=course)


def _staff(course: Path, *command: str) -> None:
    if status := _start(course, *command).wait():
        raise click.ClickException(f"`cs336 staff {command[0]}` ended with status {status}")


def _graded(results: Path) -> set[tuple[str, str]]:
    """Return each grading in the gradebook: the submission, and when it was graded."""
    with closing(sqlite3.connect(results / "gradebook.sqlite")) as gradebook:
        return set(gradebook.execute("SELECT submission, started FROM grading"))


def _check(group: Sequence[Student], results: Path, softmax: float = 1.0) -> None:
    """Compare each grade with what it should be, when the points of softmax have changed by a factor."""
    grades, canvas = (
        _column(results / "grades.csv", "student", "grade"),
        _column(results / "canvas.csv", "ID", "Attention"),
    )
    wrong = []
    for student in group:
        work = student.work
        points = (work.points + work.softmax * (softmax - 1)) * (1 - student.penalty)
        for key in student.keys:
            found = float(grades.pop(key, "nan"))
            if not (0 if work.hostile else points - ROUNDING) <= found <= points + ROUNDING:
                wrong.append(f"{key}, {work.what}: expected {points:.2f}, got {found:g}")
            if student.number != MAILED and float(canvas.pop(key, "nan")) != found:
                wrong.append(f"{key} has another grade in canvas.csv")
    wrong += [f"{key} has a grade that nobody expected" for key in grades.keys() | canvas.keys()]
    if wrong:
        raise click.ClickException("\n".join(["the grades are not as expected", *wrong]))
    click.secho("Every grade is what it should be, in grades.csv and in canvas.csv.", fg="green")


def _column(path: Path, key: str, column: str) -> dict[str, str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row[key]: row[column] for row in csv.DictReader(file)}


def _say(step: str) -> None:
    click.secho(f"\n== {step}", bold=True, fg="cyan")


if __name__ == "__main__":
    semester()
