"""Before a release: `cs336 staff fixtures`, `verify`, `handout` and `gradescope`."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from cs336_kit.handing_in.archive import ArchiveError, read_archive
from cs336_staff.authoring.stored_cases import write_fixtures
from cs336_staff.grading.course import find_checked_root
from cs336_staff.hidden.release import REHEARSAL, SECRET, load_release
from cs336_staff.release.gradescope import write_autograder
from cs336_staff.release.handout import FOLDER as HANDOUT
from cs336_staff.release.handout import MANIFEST, Handout, HandoutError, make_handout, write_handout
from cs336_staff.release.left_out import cut, find_left_out
from cs336_staff.release.mutants import verify_mutants
from cs336_staff.release.pairs import verify_pairs
from cs336_staff.release.price_list import price_list
from cs336_staff.release.stages import Stage, Stages, count
from cs336_staff.release.stated_points import TEXT, with_points
from cs336_staff.release.trial_run import TrialError, try_out
from cs336_staff.release.verify import (
    Caught,
    StoredCases,
    both_suites,
    stored_cases,
    verify_examination,
    verify_misconceptions,
    verify_right_styles,
)
from cs336_staff.release.walk import WalkError


@click.command()
@click.option("--check", is_flag=True, help="Recompute and compare; write nothing.")
@click.option("--hidden", "hidden_alone", is_flag=True, help="The hidden cases alone.")
@click.option("--new-secret", is_flag=True, help="First draw a secret for a new course, in a file that git ignores.")
def fixtures(check: bool, hidden_alone: bool, new_secret: bool) -> None:
    """Write the stored cases.

    What is drawn from a secret must not be published either: keep cs336_staff/hidden/fixtures to yourself. Public cases
    are the same in every course, so a new secret leaves them alone.
    """
    if check and new_secret:
        raise click.UsageError("expected --check or --new-secret, got both")
    root = find_checked_root()
    if new_secret:
        SECRET.write_text(f"{secrets.token_hex(32)}\n", encoding="utf-8")
        SECRET.chmod(0o600)
    if load_release().rehearsal:
        click.secho(REHEARSAL, fg="yellow", err=True)
    complaints: list[str] = []
    for stored in stored_cases(root)[hidden_alone or new_secret :]:
        if check:
            found = stored.check()
            complaints += found
            if not found:
                click.echo(f"{len(stored.specs)} {stored.suite} cases are what the references give")
            continue
        with click.progressbar(length=len(stored.specs), label=f"{stored.suite} cases") as bar:
            write_fixtures(stored.folder, stored.specs, stored.seed_of, lambda name, bar=bar: bar.update(1))
        click.echo(f"{len(stored.specs)} {stored.suite} cases written")
    if complaints:
        raise click.ClickException("\n".join(complaints))


@click.command()
def verify() -> None:
    """Test the suites: fixtures, right styles, misconceptions caught and examined, mutants of the solution killed.

    The first error is printed at once, and all of them at the end. The exit status is then 1.
    """
    torch.set_num_threads(1)  # the cases are small: threads cost more than they give
    root = find_checked_root()
    stages = Stages(Console())
    for stored in stored_cases(root):
        stages.run(f"The {stored.suite} cases are what the references give", partial(_compare, stored))
    suite = stages.run("Both suites load", lambda stage: both_suites(root))
    caught = None
    if suite:
        stages.run("Right programs pass both suites", partial(verify_right_styles, suite))
        caught = stages.run("Both suites catch every misconception", partial(verify_misconceptions, suite))
    stages.run("The examinations find what is expected, and in right programs nothing", verify_examination)
    pairs = stages.run("Of two misconceptions in one program both are found", partial(verify_pairs, root))
    if suite:
        stages.run("No mutant of the solution passes all tests", partial(verify_mutants, suite))
    if caught:
        _print_caught(caught)
    if pairs:
        table = Table("problem", "pairs", "both found", box=None, padding=(0, 1, 0, 0))
        for problem, number in pairs.pairs.items():
            table.add_row(problem, str(number), str(pairs.both[problem]))
        Console().print(table)
    if stages.errors:
        raise click.ClickException("\n".join((f"{count(stages.errors)} in all:", *stages.errors)))
    click.echo("\nNo errors")


def _compare(stored: StoredCases, stage: Stage) -> None:
    for complaint in stored.check():
        stage.error(complaint)


def _print_caught(caught: Sequence[Caught]) -> None:
    """Print for each misconception how many cases of each public test fail."""
    tests = list(dict.fromkeys(test for each in caught for test in each.failed))
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("misconception", no_wrap=True)
    for number, _ in enumerate(tests, start=1):
        table.add_column(str(number), justify="right")
    table.add_column("hidden")
    for each in caught:
        table.add_row(each.id, *(str(each.failed.get(test, "·")) for test in tests), "caught" if each.hidden else "NO")
    Console(width=140).print(table)  # a column for each test
    for number, test in enumerate(tests, start=1):
        click.echo(f"{number:>3}  {test}")


@click.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), default=Path("autograder.zip"))
def gradescope(output: Path) -> None:
    """Write the autograder that Gradescope runs."""
    if load_release().rehearsal:
        click.secho(REHEARSAL, fg="red", err=True)
    try:
        write_autograder(find_checked_root(), output)
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}; choose another place") from None
    click.echo(f"{output} written; its README says what the container needs")


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--since", type=click.Path(path_type=Path), metavar="ZIP", help="The zip of the previous release.")
def handout(out: Path, since: Path | None) -> None:
    """Cut the solutions out, write what students receive to OUT, and try it.

    OUT gets a git repository of one commit in tree/, the same as a zip, and an archive for `cs336 update`.
    """
    root = find_checked_root()
    try:
        previous = read_archive(since, MANIFEST, HANDOUT)[1] if since else {}
        release = _handout(root)
        write_handout(release, out, previous)
        click.echo(f"{len(release.files)} files written to {out}")
        for step in try_out(root, out):
            click.echo(f"tried: {step}")
    except (ArchiveError, HandoutError, TrialError, WalkError) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename or out}: {error.strerror}; choose another place") from None


def _handout(root: Path) -> Handout:
    """The handout of the problems that the course has, with their points in its text."""
    suite = both_suites(root)
    release = make_handout(root, version("cs336_basics"))
    files = cut(release.files, find_left_out(root))
    text = with_points(files[TEXT].decode(), suite.problems, price_list(suite))
    return replace(release, files={**files, TEXT: text.encode()})
