"""Which known mistakes a class made: counted in submissions, as their students read of them."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from cs336_kit.examination.diagnosis import Mistake
from cs336_staff.cli import staff
from cs336_staff.grading.class_misconceptions import count_mistakes, mistakes_table, write_mistakes
from cs336_staff.grading.exports import grades
from cs336_staff.grading.gradebook import Gradebook
from cs336_staff.tests.grading.test_gradebook import GRADING

KNOWN = {"by-d_k": Mistake("by-d_k", "you divided by d_k", "Why?", "3 Attention")}


def gradebook_of(folder: Path, **named: list[list[str]]) -> Gradebook:
    """A submission for each name, in which each test has these mistakes."""
    gradebook = Gradebook(folder / "gradebook.sqlite")
    for name, tests in named.items():
        about = {"named": {f"test_{i}": {"ids": ids, "lines": []} for i, ids in enumerate(tests)}}
        gradebook.add(replace(GRADING, submission=name, path=f"/in/{name}.zip", about=about))
    return gradebook


def test_each_submission_counts_once_for_each_mistake(tmp_path):
    with gradebook_of(
        tmp_path,
        ada=[["by-d_k"], ["by-d_k"]],
        alan=[["by-d_k", "transposed"]],  # the tests leave two
        grace=[["a", "b", "c", "transposed"]],  # too many to be named
        right=[],
    ) as gradebook:
        counts = count_mistakes(grades(gradebook))
    assert counts.most_common() == [("by-d_k", 2), ("transposed", 1)]


def test_a_gradebook_without_names(tmp_path):
    with gradebook_of(tmp_path) as gradebook:
        gradebook.add(replace(GRADING, about={}))
        assert not count_mistakes(grades(gradebook))


def test_the_file_and_the_table_have_the_commonest_first(tmp_path):
    with gradebook_of(tmp_path, ada=[["by-d_k"]], alan=[["by-d_k"], ["gone"]]) as gradebook:
        counts = count_mistakes(grades(gradebook))
    write_mistakes(tmp_path / "counts.csv", counts, KNOWN)
    assert (tmp_path / "counts.csv").read_text().splitlines() == [
        "submissions,misconception,section,name",
        "2,by-d_k,3 Attention,you divided by d_k",
        "1,gone,,",
    ]
    console = Console(width=80)
    with console.capture() as printed:
        console.print(mistakes_table(counts, KNOWN))
    assert printed.get().index("you divided by d_k") < printed.get().index("gone")


def test_a_gradebook_that_exists_is_counted(tmp_path):
    gradebook_of(tmp_path, ada=[["attention-by-d_k"]]).close()
    result = CliRunner().invoke(staff, ["misconceptions", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "you divided the scores by d_k" in result.output
    assert "1,attention-by-d_k,3 Attention," in (tmp_path / "misconceptions.csv").read_text()


def test_a_folder_without_a_gradebook(tmp_path):
    result = CliRunner().invoke(staff, ["misconceptions", str(tmp_path)])
    assert result.exit_code == 1
    assert "no gradebook in" in result.output
    assert not list(tmp_path.iterdir())
