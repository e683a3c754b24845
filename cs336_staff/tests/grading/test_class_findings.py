"""What the examinations found in a class: counted in submissions, as their students read it."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from cs336_kit.engine.result import Explanation
from cs336_staff.cli import staff
from cs336_staff.grading.class_findings import count_findings, findings_table, write_findings
from cs336_staff.grading.course import Course
from cs336_staff.grading.exports import grades
from cs336_staff.grading.gradebook import Gradebook, Notes
from cs336_staff.grading.identity import HandedIn, Student
from cs336_staff.tests.grading.test_gradebook import GRADING, new_gradebook


def gradebook_of(folder: Path, **found: list[str]) -> Gradebook:
    """A submission for each name, with these findings."""
    gradebook = new_gradebook(folder)
    for name, ids in found.items():
        explanations = tuple(Explanation("rope", id, (f"{id} of {name}", "more")) for id in ids)
        notes = Notes(explanations=explanations)
        handed = HandedIn((Student(name, name),))
        gradebook.add(replace(GRADING, submission=name, handed_in=handed, notes=notes))
    return gradebook


def test_each_submission_counts_once_for_each_finding(tmp_path):
    with gradebook_of(tmp_path, ada=["halves"], alan=["degrees", "halves"], right=[]) as gradebook:
        counts = count_findings(grades(gradebook, Course()))
    assert counts == [("rope", "halves", 2, "halves of ada"), ("rope", "degrees", 1, "degrees of alan")]


def test_the_file_and_the_table_have_the_commonest_first(tmp_path):
    with gradebook_of(tmp_path, ada=["halves"], alan=["degrees", "halves"]) as gradebook:
        counts = count_findings(grades(gradebook, Course()))
    write_findings(tmp_path / "counts.csv", counts)
    assert (tmp_path / "counts.csv").read_text().splitlines() == [
        "submissions,problem,finding,first",
        "2,rope,halves,halves of ada",
        "1,rope,degrees,degrees of alan",
    ]
    console = Console(width=80)
    with console.capture() as printed:
        console.print(findings_table(counts))
    assert printed.get().index("halves") < printed.get().index("degrees")


def test_a_gradebook_that_exists_is_counted(tmp_path):
    gradebook_of(tmp_path, ada=["halves"]).close()
    result = CliRunner().invoke(staff, ["findings", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "halves" in result.output
    assert "1,rope,halves,halves of ada" in (tmp_path / "findings.csv").read_text()


def test_a_folder_without_a_gradebook(tmp_path):
    result = CliRunner().invoke(staff, ["findings", str(tmp_path)])
    assert result.exit_code == 1
    assert "no gradebook in" in result.output
    assert not list(tmp_path.iterdir())
