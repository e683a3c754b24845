"""Before a release: `staff fixtures`, `verify`, `handout` and `gradescope`."""

import gc
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click
import torch
from rich.console import Console

from whichline.engine.assignment import find_problem, load_problems, this_assignment
from whichline.handing_in.archive import read_archive
from whichline_grader.authoring.stored_cases import write_fixtures
from whichline_grader.grading.course import find_checked_root
from whichline_grader.grading.suite import check_hidden_cases
from whichline_grader.hidden.release import load_release, tell_rehearsal
from whichline_grader.release.gradescope import write_autograder
from whichline_grader.release.handout import FOLDER as HANDOUT
from whichline_grader.release.handout import MANIFEST, make_handout, write_handout
from whichline_grader.release.stages import Stage, Stages, count
from whichline_grader.release.trial_run import try_out
from whichline_grader.release.verify import (
    StoredCases,
    both_suites,
    stored_cases,
    verify_right_styles,
    verify_steps,
)


@click.command()
@click.argument("case", nargs=-1)
@click.option("--check", is_flag=True, help="Recompute and compare; write nothing.")
@click.option("--hidden", "hidden_alone", is_flag=True, help="The hidden cases alone.")
def fixtures(case: tuple[str, ...], check: bool, hidden_alone: bool) -> None:
    """Write the stored cases that are missing or wrong; each CASE, named as its file below fixtures/, or all of them.

    The hidden cases are those of the course, in its folder; without one they are those of the rehearsal. Public cases
    are the same in every course.
    """
    torch.set_num_threads(1)  # as in `verify`
    root = find_checked_root()
    if load_release().folder is None:
        click.secho(tell_rehearsal(), fg="yellow", err=True)
    both = stored_cases(root)[hidden_alone:]
    if unknown := {*case} - {spec.name for stored in both for spec in stored.specs}:
        raise click.UsageError(
            f"no case is called {min(unknown)}; a name is a folder and a file, as in {both[0].specs[0].name}"
        )
    complaints: list[str] = []
    for stored in both:
        count = len({*case} & {spec.name for spec in stored.specs}) if case else len(stored.specs)
        if check:
            found = stored.check(case)
            complaints += found
            if count and not found:
                click.echo(f"{count} {stored.suite} cases are what the references give")
        elif count:
            with click.progressbar(length=count, label=f"{stored.suite} cases") as bar:
                written = write_fixtures(
                    stored.folder, stored.specs, stored.seed_of, lambda name, bar=bar: bar.update(1), case
                )
            click.echo(f"{written} of {count} {stored.suite} cases written, in {stored.folder}; the others are right")
    if complaints:
        raise click.ClickException("\n".join(complaints))


@click.command()
@click.argument("problem", required=False)
def verify(problem: str | None) -> None:
    """Test the suites: fixtures, right styles, steps.

    With the id of a PROBLEM, that one alone. The first error is printed at once, and all of them at the end. The exit
    status is then 1.
    """
    torch.set_num_threads(1)  # the cases are small: threads cost more than they give
    root = find_checked_root()
    problems = load_problems(root)
    if problem:
        problems = {problem: find_problem(problems, problem)}
    stages = Stages(Console())
    for stored in stored_cases(root):
        stages.run(f"The {stored.suite} cases are what the references give", partial(_compare, stored))
    suite = stages.run("Both suites load", lambda stage: both_suites(root, problem))
    gc.freeze()  # what there is now is looked through in no fork
    if suite:
        stages.run("Right programs pass both suites", partial(verify_right_styles, suite))
    title = "The steps of each problem end in the stored answers"
    stages.run(title, partial(verify_steps, root, problems))
    if stages.errors:
        raise click.ClickException("\n".join((f"{count(stages.errors)} in all:", *stages.errors)))
    click.echo("\nNo errors")


def _compare(stored: StoredCases, stage: Stage) -> None:
    for complaint in stored.check():
        stage.error(complaint)


@click.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("autograder.zip"))
def gradescope(output: Path) -> None:
    """Write the autograder that Gradescope runs."""
    root, release = find_checked_root(), load_release()
    if release.folder is None:
        click.secho(tell_rehearsal(), fg="red", err=True)
    try:
        check_hidden_cases(release)
        write_autograder(root, output)
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}; choose another place") from None
    click.echo(f"{output} written; its README says what the container needs")


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--since", type=click.Path(path_type=Path), metavar="ZIP", help="The zip of the previous release.")
def handout(out: Path, since: Path | None) -> None:
    """Cut the solutions out, write what students receive to OUT, and try it.

    OUT gets a git repository of one commit in tree/, the same as a zip, and an archive for `update`.
    """
    root = find_checked_root()
    try:
        previous = read_archive(since, MANIFEST, HANDOUT)[1] if since else {}
        number = version(this_assignment().package)
        files = make_handout(root, number)
        write_handout(files, number, out, previous)
        click.echo(f"{len(files)} files written to {out}")
        for step in try_out(root, out):
            click.echo(f"tried: {step}")
    except OSError as error:
        raise click.ClickException(f"{error.filename or out}: {error.strerror}; choose another place") from None
