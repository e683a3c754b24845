"""What tests do with files: a copy of this tree, what is in a folder before and after a command, and tables."""

import csv
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from staff.tools.student import ROOT

GIT = ("git", "-c", "user.name=staff", "-c", "user.email=staff@localhost")


def copy_tree(to: Path) -> None:
    """Copy what git knows of this tree, as it is now."""
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)


def leave_out(tree: Path, *problems: str) -> None:
    """Let a course do without some problems."""
    stated = tree / "assignment.toml"
    text = stated.read_text()
    for id in problems:
        assert f'id = "{id}"\n' in text
        text = text.replace(f'id = "{id}"\n', f'id = "{id}"\nleft_out = true\n')
    stated.write_text(text)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files, by name, into a folder, and return it."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def commit_all(folder: Path) -> None:
    """Make a folder a git repository of one commit."""
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "all of it")):
        subprocess.run([*GIT, *command], cwd=folder, check=True)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a csv file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
