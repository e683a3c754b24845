"""The commands under `cs336 staff`."""

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
