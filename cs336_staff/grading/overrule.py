"""`cs336 staff overrule`: staff decide that a violation of the rules is none."""

from pathlib import Path

import click
from rich.console import Console

from cs336_kit.engine.assignment import find_root, load_problems
from cs336_staff.grading.command import Class, write_class
from cs336_staff.grading.exports import RosterError
from cs336_staff.grading.gradebook import Gradebook, GradebookError
from cs336_staff.grading.report import write_reports


def overrule(name: str, problem: str | None, because: str | None, out: Path) -> None:
    """Record it in the gradebook, and write the reports and the grades again.

    Args:
        name: of the submission, as the results have it.
        problem: one problem, or None for all that are charged.
        because: the reason; None takes an earlier decision back.
        out: the folder of results.
    """
    problems = load_problems(find_root(Path.cwd()))
    try:
        with Gradebook.of_results(out) as gradebook:
            grading = gradebook.of(name)
            if grading is None:
                raise click.ClickException(f"{out} has no submission {name}; grades.csv has the names")
            charged = set(grading.about.get("forbidden", {}) if because else grading.overruled)
            chosen = {problem} if problem else charged
            if not charged or chosen - charged:
                got = ", ".join(sorted(charged)) or "no problem"
                what = "a violation of the rules" if because else "a decision to take back"
                raise click.ClickException(f"{name} has {what} in {got}, expected one in {problem or 'some problem'}")
            for each in sorted(chosen):
                gradebook.overrule(grading, each, because)
            after = gradebook.of(name) or grading
            write_reports(out / name, after, problems)
            write_class(Console(), gradebook, list(problems), out, Class.of(gradebook.course))
    except (GradebookError, RosterError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{name}: {after.points:.1f} of {after.maximum:g} points, {grading.points:.1f} before")
