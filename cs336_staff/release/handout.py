"""Making what students receive: the tree without solutions, anything of the staff's, and problems that are left out.

Solutions stand between `# BEGIN SOLUTION` and `# END SOLUTION`. Inside a function the region becomes
`raise NotImplementedError`; around whole functions it is left out, and with it what only the solution imported.

Files of any kind are cut by marks in comments. `staff-only: begin` and `staff-only: end` are around lines for staff,
`# staff-only` is in one, and `# handout: ` begins one for students alone. `problem ID: begin` and `problem ID: end` are
around lines that go when the course leaves the problem out, `<!-- problem ID -->` is at the end of one. A line that is
marked with several goes when all of them do.

The kit becomes one wheel: students see what they write, and no thirteen thousand lines beside it.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cs336_kit.engine.assignment import FILE_NAME as ASSIGNMENT
from cs336_kit.engine.assignment import is_students, load_problems
from cs336_kit.engine.errors import CourseworkError
from cs336_kit.engine.suite import load_suite
from cs336_kit.handing_in.archive import write_archive
from cs336_kit.handing_in.update import Update, write_update
from cs336_staff.release.kit import SOURCES, make_wheel

SHIPPED = {
    ".gitignore",
    "LICENSE",
    "README.md",
    "adapters.py",
    "assignment.toml",
    "cs336_basics",
    "cs336_kit",
    "docs",
    "fixtures",
    "pyproject.toml",
    "tests",
}
WITHHELD = {".ci", ".pre-commit-config.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "cs336_staff"}
PICTURES = "docs/pictures/"  # of screens that students have before them

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
AROUND = re.compile(rb"\s*(?:#|<!--) (staff-only|problem [\w, ]+): (begin|end)(?: -->)?\s*")
STUDENTS_ALONE = re.compile(rb"^(\s*)# handout: ?")
IN_LINE = re.compile(rb"# (staff-only)\b.*| <!-- (problem [\w, ]+) -->")
LEFTOVERS = (b"BEGIN SOLUTION", b"END SOLUTION", b"staff-only", b"cs336_staff")

TELLING_LENGTH = 25

# What students need in nearly every file stays imported there; another import goes with the solution that used it.
TOOLS = ("einsum", "functional_call", "math", "nn", "rearrange", "torch")

MANIFEST = "handout.json"
PROJECT = "pyproject.toml"
FOLDER = "assignment/"  # in the zip, so that unpacking it makes one folder

PYTHON = "{}.{}".format(*sys.version_info)  # for students the one that staff grade with


class HandoutError(CourseworkError):
    """The tree cannot be handed out; the message says which file is in the way and why."""


@dataclass(frozen=True)
class Handout:
    """The files that students receive.

    Args:
        version: that of `pyproject.toml`.
        files: content by name.
        packed: the names of files that older handouts had, and that are in the wheel.
    """

    version: str
    files: Mapping[str, bytes]
    packed: Collection[str] = ()


def make_handout(root: Path, version: str, instead: Mapping[str, bytes] | None = None) -> Handout:
    """Cut what students receive out of the solved tree.

    Args:
        root: the tree.
        version: that of `pyproject.toml`.
        instead: the content of files, where it is not that of the tree.

    Raises:
        HandoutError: a file of an unknown place or not known to git, markers that do not pair or name no problem, a
            problem that the text does not state, or a line of a solution or of the staff's that would survive.
    """
    contents = {name: (root / name).read_bytes() for name in _tracked(root)} | dict(instead or {})
    gone, kept = (load_problems(root, left_out=each).keys() for each in (True, False))
    files: dict[str, bytes] = {}
    secrets: set[str] = set()
    for name, content in without_left_out(root, contents).items():
        content = cut_marked(name, content, gone)
        if is_students(Path(name)) and name.endswith(".py"):
            source = content.decode()
            secrets |= {line.strip() for line in cut_solution(name, source)[1] if _tells(line.strip())}
            content = stub(name, source).encode()
        for strange in sorted(_marked_problems(contents[name]) - gone - kept):
            raise HandoutError(f"{name}: a mark names the problem {strange}, which is not in {ASSIGNMENT}")
        if content or not name.endswith(".md"):  # a text of problems that are all left out
            files[name] = content
    for name, content in files.items():
        _refuse_leftovers(name, content, secrets)
    _check_texts(b"\n".join(content for name, content in files.items() if name.startswith("docs/")), kept)
    kit = {name: files.pop(name) for name in [*files] if name.startswith(SOURCES)}
    if kit:
        name, wheel = make_wheel(version, contents[PROJECT], kit | {SOURCES + ASSIGNMENT: files[ASSIGNMENT]})
        files[name] = wheel
        files[PROJECT] = files[PROJECT].replace(b'"KIT"', b'"%b"' % name.encode())
    return Handout(version, files, frozenset(kit))


def without_left_out(root: Path, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Leave out the files of problems that the course leaves out, and the lines of a text that list them."""
    gone = load_problems(root, left_out=True)
    problems = load_problems(root) | gone
    belongs = {id: set(problem.files) for id, problem in problems.items()}
    for test in load_suite(root, [root / "tests"], problems).tests if gone else ():
        belongs[test.problem] |= {test.place[0], *(f"fixtures/{case.name}.safetensors" for case in test.cases())}
    files = (
        set().union(*(belongs[id] for id in gone)).difference(*(belongs[id] for id in problems.keys() - gone.keys()))
    )
    listed = {file.encode() for file in files}

    def unlisted(line: bytes) -> bool:
        return listed.isdisjoint(line.split()[:1])

    return {
        name: b"".join(filter(unlisted, content.splitlines(keepends=True))) if name.endswith(".md") else content
        for name, content in contents.items()
        if name not in files
    }


def write_handout(handout: Handout, out: Path, previous: Mapping[str, bytes]) -> None:
    """Write the git repository of one commit, its zip, and the update archive for those who have an earlier release.

    Args:
        out: a folder that is empty or does not exist.
        previous: the files of that earlier release; what is gone since is taken away by the update.

    Raises:
        HandoutError: `out` is in use, or uv cannot resolve the dependencies.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HandoutError(f"{out} is not an empty folder; name another")
    tree = out / "tree"
    pinned = {**handout.files, ".python-version": f"{PYTHON}\n".encode()}
    for name, content in pinned.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    _run(tree, "uv", "lock", "--quiet")
    # An index does not always say how large its files are, and a lock needs no sizes.
    lock = re.sub(rb", size = \d+", b"", (tree / "uv.lock").read_bytes())
    (tree / "uv.lock").write_bytes(lock)
    files = {**pinned, "uv.lock": lock}

    _run(tree, "git", "init", "--quiet", "--initial-branch=main")
    _run(tree, "git", "add", "--all", "--force")
    _run(tree, "git", "commit", "--quiet", "--message", f"The assignment, release {handout.version}")

    write_archive(out / f"handout-{handout.version}.zip", MANIFEST, {"version": handout.version}, files, FOLDER)
    ours = {name: content for name, content in files.items() if not is_students(Path(name))}
    gone = {name for name in previous if name not in files and not is_students(Path(name))}
    removed = tuple(sorted(gone.union(handout.packed)))
    write_update(out / f"update-{handout.version}.zip", Update(handout.version, ours, removed))


def stub(name: str, source: str, written: Collection[str] = ()) -> str:
    """Make what students start from, or have in front of them once they have `written` some functions of the file.

    Raises:
        HandoutError: the markers do not pair.
    """
    return _formatted(_without_unused_imports(cut_solution(name, source, written)[0]))


def cut_solution(name: str, source: str, written: Collection[str] = ()) -> tuple[str, list[str]]:
    """Cut the solutions out of a source, and return it with the lines that went.

    Args:
        name: of the file, for errors.
        source: what is in it.
        written: functions, as "softmax" or "Linear.forward", that keep their solutions; the first of them brings what
            stands outside of functions.

    Raises:
        HandoutError: the markers do not pair.
    """
    functions = dict(_functions(ast.parse(source)))
    kept: list[str] = []
    gone: list[str] = []
    begun, keeps = 0, False
    for number, line in enumerate(source.splitlines(keepends=True), start=1):
        match line.strip():
            case marker if marker not in (BEGIN, END):
                (gone if begun and not keeps else kept).append(line)
            case marker if (marker == BEGIN) == bool(begun):
                raise HandoutError(f"{name}:{number}: {marker} without its partner")
            case marker if marker == BEGIN:
                begun = number
                around = [function for function, lines in functions.items() if number in lines]
                keeps = bool(set(around) & set(written) if around else written)
                if around and not keeps:
                    kept.append(line.replace(BEGIN, "raise NotImplementedError"))
            case _:
                begun = 0
    if begun:
        raise HandoutError(f"{name}:{begun}: {BEGIN} without its partner")
    return "".join(kept), gone


def _functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, range]]:
    """The lines of each function and method, by name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield inside + child.name, range(child.lineno, (child.end_lineno or 0) + 1)
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{inside}{child.name}.")


def _tracked(root: Path) -> Iterator[str]:
    """The names of the files that ship, once every file of the tree is accounted for."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    known = set(_run(root, "git", "ls-files", "-z").split("\0"))
    for name in sorted(filter(None, _run(root, *listing).split("\0"))):
        top = name.partition("/")[0]
        if top in WITHHELD or name.startswith(PICTURES):
            continue
        if top not in SHIPPED:
            raise HandoutError(f"{name}: neither shipped nor withheld; say which in cs336_staff/release/handout.py")
        if name not in known:
            raise HandoutError(f"{name}: git does not know it; add it or remove it")
        if (root / name).is_symlink() or not (root / name).is_file():
            raise HandoutError(f"{name}: not a plain file")
        yield name


def cut_marked(name: str, content: bytes, left_out: Collection[str] = ()) -> bytes:
    """Cut the lines of the staff's and those of problems that are `left_out`, and all marks.

    Raises:
        HandoutError: the marks do not pair.
    """
    kept: list[bytes] = []
    around: list[str] = []

    def goes(mark: str) -> bool:
        return mark == "staff-only" or set(mark.removeprefix("problem ").split(", ")) <= set(left_out)

    for line in content.splitlines(keepends=True):
        if edge := AROUND.fullmatch(line):
            mark = edge[1].decode()
            if edge[2] == b"begin":
                around.append(mark)
            elif not around or around.pop() != mark:
                raise HandoutError(f"{name}: {mark} markers that do not pair")
        elif not any(map(goes, around)):
            mark = IN_LINE.search(line)
            if not mark or not goes((mark[1] or mark[2]).decode()):
                kept.append(STUDENTS_ALONE.sub(rb"\1", IN_LINE.sub(b"", line)))
    if around:
        raise HandoutError(f"{name}: {around[-1]} markers that do not pair")
    return b"".join(kept)


def _marked_problems(content: bytes) -> set[str]:
    """The ids in the marks of a file."""
    marks = {edge[1] for line in content.splitlines() if (edge := AROUND.fullmatch(line))}
    marks |= {both[1] for both in IN_LINE.findall(content)}
    named = (mark.decode().removeprefix("problem ").split(", ") for mark in marks if mark.startswith(b"problem "))
    return set[str]().union(*named)


def _check_texts(text: bytes, problems: Collection[str]) -> None:
    """Raise HandoutError unless each problem, and no other, has its line in the text."""
    stated = [id.decode() for id in re.findall(rb"^\*\*Problem `(\w+)`", text, re.MULTILINE)]
    for id in problems:
        if stated.count(id) != 1:
            raise HandoutError(f"docs: {stated.count(id)} lines begin with **Problem `{id}`, expected 1: its section's")
    for id in stated:
        if id not in problems:
            raise HandoutError(f"docs: a line begins with **Problem `{id}`, which is not handed out; mark its section")


def _tells(line: str) -> bool:
    """Tell whether a line gives a solution away wherever it is; imports are given, and `return x` is anyone's."""
    return len(line) >= TELLING_LENGTH and not line.startswith(("import ", "from "))


def _refuse_leftovers(name: str, content: bytes, secrets: set[str]) -> None:
    for leftover in LEFTOVERS:
        if leftover in content:
            raise HandoutError(f"{name}: {leftover.decode()!r} would reach students")
    for line in secrets:
        if line.encode() in content:
            raise HandoutError(f"{name}: a line of the solution would reach students: {line}")


def _without_unused_imports(source: str) -> str:
    """Leave out imports that only the solution used: what they name may be gone, too."""
    uses = f"({', '.join(TOOLS)})\n"
    command = ("ruff", "check", "--quiet", "--isolated", "--select=F401", "--fix-only", "-")
    return _run(Path.cwd(), *command, stdin=source + uses).removesuffix(uses)


def _formatted(source: str) -> str:
    """Without the blank lines that a cut leaves behind."""
    return _run(Path.cwd(), "ruff", "format", "--quiet", "--line-length=120", "-", stdin=source)


def _run(folder: Path, *command: str, stdin: str | None = None) -> str:
    """Run a command and return what it prints. Commits have the same bytes whoever makes them and whenever."""
    who = {f"GIT_{role}_{key}": "staff" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    when = {f"GIT_{role}_DATE": "2000-01-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=os.environ | who | when | quiet,
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except FileNotFoundError:
        raise HandoutError(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise HandoutError(f"{' '.join(command)} failed:\n{error.stderr.strip()}") from None
