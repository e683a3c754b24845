"""The commands under `cs336 staff`."""

from importlib.metadata import version
from pathlib import Path

import click

from cs336_kit.assignment import find_root


@click.group()
def staff() -> None:
    """Fixtures, grading and the handout: for staff."""


@staff.command()
@click.option("--check", is_flag=True, help="Recompute and compare; write nothing.")
def fixtures(check: bool) -> None:
    """Write the stored cases."""
    from cs336_staff.cases import PUBLIC
    from cs336_staff.fixtures import check_fixtures, write_fixtures

    folder = find_root(Path.cwd()) / "fixtures"
    if not check:
        write_fixtures(folder, PUBLIC)
        click.echo(f"{len(PUBLIC)} cases written to {folder}")
        return
    complaints = list(check_fixtures(folder, PUBLIC))
    if complaints:
        raise click.ClickException("\n".join(complaints))
    click.echo(f"{len(PUBLIC)} cases are what the references give")


@staff.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--since", type=click.Path(path_type=Path), metavar="ZIP", help="The zip of the release before this one.")
def handout(out: Path, since: Path | None) -> None:
    """Cut the solutions out, write what students receive to OUT, and try it.

    OUT gets a git repository of one commit in tree/, the same as a zip, and an archive for `cs336 update`.
    """
    from cs336_kit.archive import ArchiveError, read_archive
    from cs336_staff.handout import MANIFEST, HandoutError, make_handout, write_handout
    from cs336_staff.tryout import TryoutError, try_out

    root = find_root(Path.cwd())
    try:
        previous = read_archive(since, MANIFEST)[1] if since else {}
        release = make_handout(root, version("cs336_basics"))
        write_handout(release, out, previous)
        click.echo(f"{len(release.files)} files written to {out}")
        for step in try_out(root, out):
            click.echo(f"tried: {step}")
    except (ArchiveError, HandoutError, TryoutError) as error:
        raise click.ClickException(str(error)) from None
