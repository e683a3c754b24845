"""Before a release: `staff handout` and `gradescope`."""

from pathlib import Path

import click

from whichline.engine.assignment import PROBLEMS, get_assignment, load_problems
from whichline.engine.kit import read_version
from whichline.engine.problem_folder import REFERENCE, is_kept
from whichline.submission.archive import read_archive
from whichline_grader.grading.course import find_checked_root
from whichline_grader.hidden.release import describe_rehearsal, load_release
from whichline_grader.release.gradescope import write_autograder
from whichline_grader.release.handout import FOLDER as HANDOUT
from whichline_grader.release.handout import MANIFEST, list_unchanged, make_handout, write_handout
from whichline_grader.release.trial_run import try_out


@click.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("autograder.zip"))
def gradescope(output: Path) -> None:
    """Write the autograder that Gradescope runs."""
    from whichline_grader.grading.suite import check_hidden_cases  # imports torch

    root, release = find_checked_root(), load_release()
    if release.folder is None:
        click.secho(describe_rehearsal(), fg="red", err=True)
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
        number = read_version(get_assignment().package)
        files = make_handout(root, number)
        write_handout(files, number, out, previous)
        click.echo(f"{len(files)} files written to {out}")
        for problem in load_problems(root):
            if is_kept(problem, (root / PROBLEMS / problem / f"{REFERENCE}.py").read_text(encoding="utf-8")):
                click.echo(f"{problem} ships no reference: students see which tests fail, but no marked line")
        for name in list_unchanged(files):
            click.echo(f"{name}: students get its first line, which says what you should change")
        for step in try_out(root, out):
            click.echo(f"tried: {step}")
    except OSError as error:
        raise click.ClickException(f"{error.filename or out}: {error.strerror}; choose another place") from None
