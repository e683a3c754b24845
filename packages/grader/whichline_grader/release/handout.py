"""Making what students receive: the tree without solutions, anything of the staff's, and problems that are left out.

Solutions stand between `# BEGIN SOLUTION` and `# END SOLUTION`. Inside a function the region becomes
`raise NotImplementedError`; around whole functions it is left out, and with it what only the solution imported. What
students have in another form than staff lies in `staff/handout/` as they get it. No folder named `staff` ships.

The problems and the engine become one wheel, the kit: students see what they write, and edit nothing else by accident.
The starter code is in it, too, for `reset`.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath

from whichline.engine.assignment import ADAPTERS, PROBLEMS, is_students, read_assignment
from whichline.engine.assignment import FILE_NAME as ASSIGNMENT
from whichline.engine.errors import CourseworkError
from whichline.engine.problem_folder import STARTER
from whichline.submission.archive import write_archive
from whichline.submission.update import Update, write_update
from whichline_grader.paths import STAFF
from whichline_grader.release.kit import make_wheel
from whichline_grader.release.left_out import remove_left_out

SHIPPED = ("LICENSE", ADAPTERS, ASSIGNMENT, PROBLEMS, "docs", "fixtures", "tests")  # and what students write
OVERLAY = f"{STAFF}/handout/"

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
LEFTOVERS = (b"BEGIN SOLUTION", b"END SOLUTION", b"whichline_grader")

TELLING_LENGTH = 25

# What students need in nearly every file stays imported there; another import goes with the solution that used it.
TOOLS = ("einsum", "functional_call", "math", "nn", "rearrange", "torch")

MANIFEST = "handout.json"
PROJECT = "pyproject.toml"
FOLDER = "assignment/"  # in the zip, so that unpacking it makes one folder

RUFF = (sys.executable, "-m", "ruff")
PYTHON = "{}.{}".format(*sys.version_info)  # for students the one that staff grade with


def make_handout(root: Path, version: str) -> dict[str, bytes]:
    """Cut what students receive out of the solved tree: the content of each file, by name.

    CourseworkError for a file that git does not know, markers that do not pair, a problem that the texts do not state,
    or a line of a solution or of the staff's that would survive.
    """
    files = remove_left_out(root, dict(_list_tracked(root)))
    secrets: set[str] = set()
    starters: dict[str, bytes] = {}
    for name, content in files.items():
        if is_students(Path(name)) and name.endswith(".py"):
            source = content.decode()
            secrets |= {line.strip() for line in cut_solution(name, source)[1] if _gives_away(line.strip())}
            files[name] = starters[name] = stub(name, source).encode()
    if leftovers := [each for name, content in files.items() for each in _list_leftovers(name, content, secrets)]:
        raise CourseworkError("\n".join(leftovers))
    assignment = read_assignment(root)
    project = tomllib.loads((root / PROJECT).read_text(encoding="utf-8"))["project"]
    kit = {name: files.pop(name) for name in [*files] if PurePath(name).parts[0] in assignment.in_kit}
    kit |= {f"{PROBLEMS}/{STARTER}/{name}": content for name, content in starters.items()}
    name, wheel = make_wheel(assignment.command, version, project["requires-python"], kit)
    files[name] = wheel
    files[PROJECT] = files[PROJECT].replace(b'"KIT"', b'"%b"' % name.encode())
    return files


def write_handout(files: Mapping[str, bytes], version: str, out: Path, previous: Mapping[str, bytes]) -> None:
    """Write the git repository of one commit, its zip, and the update archive for those who have an earlier release.

    The update removes the files of the `previous` release that are no longer there. CourseworkError if `out` is in use,
    or uv cannot resolve the dependencies.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CourseworkError(f"{out} is not an empty folder; name another")
    tree = out / "tree"
    files = {**files, ".python-version": f"{PYTHON}\n".encode()}
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    _run(tree, "uv", "lock", "--quiet")
    # An index does not always say how large its files are, and a lock needs no sizes.
    files["uv.lock"] = re.sub(rb", size = \d+", b"", (tree / "uv.lock").read_bytes())
    (tree / "uv.lock").write_bytes(files["uv.lock"])
    _run(tree, "git", "init", "--quiet", "--initial-branch=main")
    _run(tree, "git", "add", "--all", "--force")
    _run(tree, "git", "commit", "--quiet", "--message", f"The assignment, release {version}")
    write_archive(out / f"handout-{version}.zip", MANIFEST, {"version": version}, files, FOLDER)
    ours = {name: content for name, content in files.items() if not is_students(Path(name))}
    gone = {name for name in previous if name not in files and not is_students(Path(name))}
    write_update(out / f"update-{version}.zip", Update(version, ours, tuple(sorted(gone))))


def list_unchanged(files: Mapping[str, bytes]) -> list[str]:
    return [name for name, content in files.items() if b"CHANGE:" in content.partition(b"\n")[0]]


def stub(name: str, source: str, written: Collection[str] = ()) -> str:
    """Make what students start from, or have in front of them once they have `written` some functions of the file."""
    cut = _remove_unused_imports(cut_solution(name, source, written)[0])
    return _run(Path.cwd(), *RUFF, "format", "--quiet", "--line-length=120", "-", stdin=cut)


def cut_solution(name: str, source: str, written: Collection[str] = ()) -> tuple[str, list[str]]:
    """Cut the solutions out of a source, and return it and the lines that went; CourseworkError if markers do not pair.

    Functions that are `written`, as "function" or "Class.method", keep theirs; the first of them brings what stands
    outside of functions.
    """
    functions = dict(_list_functions(ast.parse(source)))
    kept: list[str] = []
    gone: list[str] = []
    begun, keeps = 0, False
    for number, line in enumerate(source.splitlines(keepends=True), start=1):
        match line.strip():
            case marker if marker not in (BEGIN, END):
                (gone if begun and not keeps else kept).append(line)
            case marker if (marker == BEGIN) == bool(begun):
                raise CourseworkError(f"{name}:{number}: {marker} without its partner")
            case marker if marker == BEGIN:
                begun = number
                around = [function for function, lines in functions.items() if number in lines]
                keeps = bool(set(around) & set(written) if around else written)
                if around and not keeps:
                    kept.append(line.replace(BEGIN, "raise NotImplementedError"))
            case _:
                begun = 0
    if begun:
        raise CourseworkError(f"{name}:{begun}: {BEGIN} without its partner")
    return "".join(kept), gone


def _list_functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, range]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield inside + child.name, range(child.lineno, (child.end_lineno or 0) + 1)
        elif isinstance(child, ast.ClassDef):
            yield from _list_functions(child, f"{inside}{child.name}.")


def _list_tracked(root: Path) -> Iterator[tuple[str, bytes]]:
    """The files that ship, by the names that students know, once every file of the tree is accounted for."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    known = set(_run(root, "git", "ls-files", "-z").split("\0"))
    assignment = read_assignment(root)
    shipped = {*SHIPPED, assignment.package, *assignment.in_kit}
    for place in sorted(filter(None, _run(root, *listing).split("\0"))):
        name = place.removeprefix(OVERLAY)
        parts = PurePath(place).parts
        if name == place and (STAFF in parts or parts[0] not in shipped):
            continue
        if place not in known:
            raise CourseworkError(f"{place}: git does not know it; add it or remove it")
        if (root / place).is_symlink() or not (root / place).is_file():
            raise CourseworkError(f"{place}: not a plain file")
        yield name, (root / place).read_bytes()


def _gives_away(line: str) -> bool:
    """Tell whether a line gives a solution away wherever it is; imports are given, and `return x` is anyone's."""
    return len(line) >= TELLING_LENGTH and not line.startswith(("import ", "from "))


def _list_leftovers(name: str, content: bytes, secrets: set[str]) -> Iterator[str]:
    """Say what of the staff's or of a solution is in a file, line by line."""
    found = [*LEFTOVERS, *(line.encode() for line in sorted(secrets))]
    found = [each for each in found if each in content]
    for number, line in enumerate(content.splitlines(), 1) if found else ():
        for each in (each for each in found if each in line):
            is_solution = each not in LEFTOVERS
            what = f"a line of the solution, {each.decode()}," if is_solution else f"{each.decode()!r}"
            yield f"{name}:{number}: {what} would reach students{'; write it in another way here' * is_solution}"


def _remove_unused_imports(source: str) -> str:
    """Leave out imports that only the solution used: what they name may be gone, too."""
    uses = f"({', '.join(TOOLS)})\n"
    command = (*RUFF, "check", "--quiet", "--isolated", "--select=F401", "--fix-only", "-")
    return _run(Path.cwd(), *command, stdin=source + uses).removesuffix(uses)


def _run(folder: Path, *command: str, stdin: str | None = None) -> str:
    """Run a command and return what it prints. Commits have the same bytes whoever makes them and whenever."""
    who = {f"GIT_{role}_{key}": "staff" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    when = {f"GIT_{role}_DATE": "2000-01-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")}
    try:
        env = os.environ | who | when | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        run = subprocess.run(command, cwd=folder, env=env, input=stdin, capture_output=True, text=True, check=True)
        return run.stdout
    except FileNotFoundError:
        raise CourseworkError(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise CourseworkError(f"{' '.join(command)} failed:\n{error.stderr.strip()}") from None
