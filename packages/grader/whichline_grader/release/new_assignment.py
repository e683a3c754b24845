"""`staff new-assignment`: a folder with an assignment of one problem that runs at once."""

import json
import os
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

import click

from whichline.engine.assignment import A_NAME, PROBLEMS, is_name, serve
from whichline_grader.paths import STAFF

TEMPLATE = Path(__file__).with_name("template")
NAME = "NAME"  # in the template, in texts and in names of files
TAKEN = (PROBLEMS, STAFF, "adapters", "docs", "fixtures", "tests")  # by other folders and files of an assignment
PACKAGES = ("whichline", "whichline-grader")

MADE = """\
{folder} has an assignment of one problem. The first line of each file says what to change.
  cd {folder}
  git init && git add .
  uv run pytest
  uv run {name} staff verify
  uv run {name} staff handout ../OUT
making-an-assignment.md goes on from there.
"""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def new_assignment(folder: Path) -> None:
    """Write an assignment with one problem to FOLDER, whose name it gets, with its stored cases."""
    folder = folder.resolve()
    name = folder.name
    if not is_name(name) or name in TAKEN:
        taken = f"nor one of {', '.join(TAKEN)}"
        raise click.ClickException(f"{name} cannot be the name of the students' package: choose {A_NAME}, {taken}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.ClickException(f"{folder} is not an empty folder; name another")
    sources = _write_sources(folder)
    for path in sorted(TEMPLATE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            below = path.relative_to(TEMPLATE).as_posix().replace(NAME, name).replace("gitignore", ".gitignore")
            text = path.read_text(encoding="utf-8").replace(NAME, name)
            (folder / below).parent.mkdir(parents=True, exist_ok=True)
            (folder / below).write_text(text.replace("SOURCES\n", sources), encoding="utf-8")
    serve(folder)
    from whichline_grader.release.verify import stored_cases  # imports torch

    for stored in stored_cases(folder):
        stored.write()
    click.echo(MADE.format(folder=os.path.relpath(folder), name=name), nl=False)


def _write_sources(folder: Path) -> str:
    """Say from which folder or wheel uv takes the engine and the grader, if they came from one here."""
    lines = [
        f"{package} = {{ path = {json.dumps(os.path.relpath(path, folder))}{', editable = true' * editable} }}\n"
        for package, path, editable in map(_find_source, PACKAGES)
        if path
    ]
    return "".join(("\n[tool.uv.sources]\n", *lines, "\n")) if lines else "\n"


def _find_source(package: str) -> tuple[str, str, bool]:
    """The folder or the wheel that a package was installed from (PEP 610), and whether it is edited there."""
    origin = json.loads(distribution(package).read_text("direct_url.json") or "{}")
    url = urlparse(origin.get("url", ""))
    path = unquote(url.path) if url.scheme == "file" else ""
    return package, path, origin.get("dir_info", {}).get("editable", False)
