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
    from cs336_staff.cases import HIDDEN, PUBLIC
    from cs336_staff.fixtures import check_fixtures, write_fixtures
    from cs336_staff.hidden.release import FOLDER, load_release

    root = find_root(Path.cwd())
    if not check:
        write_fixtures(root / "fixtures", PUBLIC)
        write_fixtures(FOLDER / "fixtures", HIDDEN, load_release().seed)
        click.echo(f"{len(PUBLIC)} public and {len(HIDDEN)} hidden cases written")
        return
    complaints = [*check_fixtures(root / "fixtures", PUBLIC), *check_fixtures(FOLDER / "fixtures", HIDDEN)]
    if complaints:
        raise click.ClickException("\n".join(complaints))
    click.echo(f"{len(PUBLIC)} public and {len(HIDDEN)} hidden cases are what the references give")
