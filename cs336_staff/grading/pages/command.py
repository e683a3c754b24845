"""`cs336 staff report`."""

from pathlib import Path

import click

from cs336_staff.grading.changes import RESULTS
from cs336_staff.grading.course import find_checked_root, load_course
from cs336_staff.grading.exports import RosterError
from cs336_staff.grading.gradebook import Gradebook, GradebookError
from cs336_staff.grading.pages.site import INDEX, STUDENTS, write_site
from cs336_staff.hidden.release import load_graded_problems


@click.command()
@click.argument("results", type=RESULTS, default=Path("results"))
@click.option("--anonymous", is_flag=True, help="Name nobody: random numbers, and nothing that a student wrote.")
def report(results: Path, anonymous: bool) -> None:
    """Write the gradebook of RESULTS as pages: index.html for staff, and students/NAME.html for each student.

    The pages stand alone: they load nothing, and can be opened from a disk, mailed or printed.
    """
    root = find_checked_root()
    try:
        with Gradebook.of_results(results) as gradebook:
            count = write_site(results, gradebook, load_graded_problems(root), load_course(root), anonymous)
    except (GradebookError, RosterError, OSError) as error:
        raise click.ClickException(str(error)) from None
    pages = "1 submission: its page is" if count == 1 else f"{count} submissions: their pages are"
    click.echo(f"{results / INDEX} reports on {pages} in {results / STUDENTS}")
