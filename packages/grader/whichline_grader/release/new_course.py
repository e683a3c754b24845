"""`staff new-course`: a folder for what a course keeps to itself, where neither git nor a clean-up finds it."""

import re
import secrets
import tempfile
from datetime import datetime
from pathlib import Path

import click
import torch

from whichline.engine.assignment import get_root
from whichline_grader.authoring.spec import load_specs
from whichline_grader.authoring.stored_cases import write_fixtures
from whichline_grader.hidden.release import CASES, SECRET, Release, load_course_folder, name_folder
from whichline_grader.paths import COURSE

MADE = """\
{folder} has what this course keeps to itself:
  secret.txt   every hidden input is drawn from it
  hidden/      the hidden cases
  results/     gradebook, grades and reports, as soon as you grade
Put roster.csv and groups.csv there, too. Back it up: without the secret nobody can grade this course again.
staff/course.toml names it; commit that file.
"""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Also if there is a course: its secret and its cases are kept, dated.")
def new_course(folder: Path, force: bool) -> None:
    """Make FOLDER for what a course keeps to itself, with a secret and the hidden cases, and name it in course.toml.

    It lies outside the checkout, since `git clean` deletes what git ignores.
    """
    torch.set_num_threads(1)  # as in `verify`
    folder = folder.resolve()
    _check(folder, force)
    secret = secrets.token_hex(32).encode()  # anyone could guess a short one from its SHA-256 in course.toml
    place = Path("~") / folder.relative_to(Path.home()) if folder.is_relative_to(Path.home()) else folder
    stated = get_root() / COURSE
    text = re.sub(r"^(folder|secret_sha256) *=.*\n", "", stated.read_text(encoding="utf-8"), flags=re.MULTILINE)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    # Whole or not at all: what is there keeps its name until all that is new is written.
    with tempfile.TemporaryDirectory(dir=folder) as new_folder:
        new = Path(new_folder)
        (new / SECRET).write_bytes(secret + b"\n")
        (new / SECRET).chmod(0o600)
        (new / CASES).mkdir(0o700)
        specs = [case for spec in load_specs().values() for case in spec.hidden]
        with click.progressbar(length=len(specs), label="hidden cases") as bar:
            write_fixtures(new / CASES, specs, Release(secret).seed, lambda name: bar.update(1))
        for name in (SECRET, CASES):
            if (folder / name).exists():
                kept = folder / f"{datetime.now():%Y-%m-%d-%H%M%S}-{name}"
                (folder / name).rename(kept)
                click.echo(f"{folder / name} is now {kept}")
            (new / name).rename(folder / name)
    (unfinished := stated.with_suffix(".new")).write_text(name_folder(str(place), secret) + text, encoding="utf-8")
    unfinished.rename(stated)
    click.echo(MADE.format(folder=folder), nl=False)


def _check(folder: Path, force: bool) -> None:
    if folder.is_relative_to(get_root().resolve()):
        raise click.ClickException(f"{folder} is inside the checkout, where `git clean` deletes it; name one outside")
    for above in get_root().resolve().parents:
        if (above / ".git").exists() and folder.is_relative_to(above):
            raise click.ClickException(f"{folder} is inside {above}, which git keeps: name one outside")
    if force:
        return
    if place := load_course_folder().place:
        raise click.ClickException(f"course.toml already names a course, in {place}; --force makes another one")
    if any((folder / name).exists() for name in (SECRET, CASES, "results")):
        raise click.ClickException(f"{folder} already holds a course; name another folder, or --force")
