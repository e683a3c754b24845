"""Trying a handout before it ships: as a student would, in an environment of its own.

Each problem is solved by itself and in its turn, so that a file which needs what a later problem writes, or what went
with the solution, is found.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pexpect

from whichline.checking.events import Event
from whichline.checking.runner import Forks, Run
from whichline.engine.assignment import Problem, load_problems, read_assignment, student_files
from whichline.engine.errors import CourseworkError
from whichline.engine.result import Check, Result
from whichline_grader.release.handout import stub

IMPORT_ALL = """
import pkgutil
from importlib import import_module
import adapters
package = import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, {package!r} + "."):
    import_module(module.name)
"""

OF_THE_SOLVED_TREE = ("PYTHONDONTWRITEBYTECODE", "UV_PROJECT_ENVIRONMENT")


def try_out(root: Path, out: Path) -> Iterator[str]:
    """Go through a student's term with a clone of the handout, and say after each step what was tried.

    CourseworkError if a step fails; `root` is the solved tree, and `out` what `write_handout` wrote.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        clone, stubs = Path(folder) / "assignment", Path(folder) / "stubs"
        for tree in (clone, stubs):
            _run(Path(folder), "git", "clone", "--quiet", str(out.resolve() / "tree"), str(tree))
        _run(clone, "uv", "sync", "--quiet", "--locked")
        lend_bytecode(clone / ".venv")
        yield "a clone of the handout installs from its own lock file"
        walked = beside.submit(walk, root, stubs, str(clone / ".venv" / "bin" / "python"))
        for name in student_files():
            target = clone / name
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            copy = shutil.copytree if (root / name).is_dir() else shutil.copy
            copy(root / name, target)
        _run(clone, "uv", "run", "pytest", "--quiet")
        yield "with the solution laid over it, all public tests pass"
        problems = load_problems(root)
        hinted = [("hint", id) for id, each in problems.items() if each.hints][:1]
        updates = map(str, out.resolve().glob("update-*.zip"))
        for each in (("check",), *hinted, ("submit",), ("submit", "--check", "submission.zip"), ("update", *updates)):
            _run(clone, "uv", "run", read_assignment(root).command, *each)
        yield "check, hint, submit and update work there, and its submission.zip reads back"
        graded = beside.submit(_grade, root, clone / "submission.zip", Path(folder) / "results")
        _watch(clone, next(iter(problems)))
        yield "check --watch shows the board, and another one after a save"
        yield f"every file can be imported, and each problem asks for what is missing: {walked.result()} functions"
        yield f"graded, submission.zip gets {graded.result()} points"


def lend_bytecode(environment: Path) -> None:
    """Give an environment what is compiled in this one: for torch alone it takes seconds, and each process does it."""
    here = Path(sysconfig.get_path("purelib"))
    for compiled in here.rglob("*.pyc"):
        cache = environment / here.relative_to(sys.prefix) / compiled.parent.relative_to(here)
        if cache.parent.is_dir():
            cache.mkdir(exist_ok=True)
            try:  # Python uses it if it is that of the file beside it
                os.link(compiled, cache / compiled.name)
            except OSError:  # on another disk
                shutil.copy(compiled, cache)


def _grade(root: Path, submission: Path, out: Path) -> str:
    """Grade a submission, which should get all points: how many of how many it gets."""
    grade = ("uv", "run", read_assignment(root).command, "staff", "grade", str(submission), "--out", str(out))
    _run(root, *grade, environment=dict(os.environ))
    report = json.loads((out / "submission" / "results.json").read_text())
    if lost := [function for test in report["tests"] for function in test["extra_data"]["lost"]]:
        raise CourseworkError(f"submission.zip should get all points, but it fails {', '.join(lost)}")
    most = sum(each.points for each in load_problems(root).values())
    if not math.isclose(report["score"], most):
        feedback = (out / "submission" / "feedback.md").read_text().strip()
        raise CourseworkError(f"submission.zip should get all {most:g} points; is what it uses forbidden?\n{feedback}")
    return f"{report['score']:g} of {report['extra_data']['maximum']:g}"


def _import_all(tree: Path, package: str, python: str) -> None:
    """Import every file beside the stubs; CourseworkError if one cannot be imported."""
    command = [python, "-c", IMPORT_ALL.format(package=package)]
    imported = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if imported.returncode != 0:
        places = re.findall(r'File "(.+)", line (\d+)', imported.stderr)
        where = f"{os.path.relpath(places[-1][0], tree.resolve())}, line {places[-1][1]}: " if places else ""
        error = imported.stderr.strip().splitlines()[-1]
        raise CourseworkError(f"as handed out, a file cannot be imported: {where}{error}")


def walk(root: Path, tree: Path, python: str = sys.executable) -> int:
    """Solve the handout in `tree`, a function at a time, with the solution in `root`; count what is asked for.

    CourseworkError if a file cannot be imported beside the stubs, a test fails for another reason than that something
    is not written yet, or a problem asks for what is not in its files. `python` finds the kit.
    """
    _import_all(tree, read_assignment(root).package, python)
    problems = list(load_problems(tree).values())
    events: SimpleQueue[tuple[int, Event]] = SimpleQueue()
    forks = Forks(tree, events.put, python)
    written: defaultdict[str, set[str]] = defaultdict(set)
    runs = 0

    def results(chosen: list[Problem]) -> list[Result]:
        nonlocal runs
        runs += 1
        run = Run(runs)
        forks.start(runs, [problem.id for problem in chosen], most=0)
        while run.status is None:
            run.hear(events.get()[1])
        return run.results_or_error()

    try:
        for number, problem in enumerate(problems):
            came = results(problems[number:])
            if odd := [result for result in came if result.check is not Check.NOT_WRITTEN]:
                what = f"{odd[0].test} should ask for what is missing: {odd[0].headline or 'passes'}"
                raise CourseworkError(f"before {problem.id} is written, {what}")
            came = [result for result in came if result.problem == problem.id]
            while missing := next((result for result in came if not result.passed), None):
                file, function = missing.functions[-1] if missing.functions else ("", "")
                if missing.check is not Check.NOT_WRITTEN or not file or function in written[file]:
                    raise CourseworkError(f"while {problem.id} is written, {missing.test} says: {missing.headline}")
                if file not in ("adapters.py", *problem.files):
                    raise CourseworkError(f"{problem.id} asks for {function} in {file}, which is not one of its files")
                written[file].add(function)
                (tree / file).write_text(stub(file, (root / file).read_text(), written[file]))
                came = results([problem])
    finally:
        forks.close()
    return sum(map(len, written.values()))


def _watch(tree: Path, problem: str) -> None:
    """Unwrite what calls the solution while the board is watched on a terminal, and put it back."""
    adapters = tree / "adapters.py"
    written = adapters.read_text()
    command = ["run", read_assignment(tree).command, "check", "--watch", problem]
    how = {"env": _make_environment() | {"TERM": "dumb"}, "encoding": "utf-8", "timeout": 120}
    terminal = pexpect.spawn("uv", command, cwd=tree, dimensions=(24, 80), **how)
    try:
        unwritten = stub(adapters.name, written)
        for text, state in ((written, "passed"), (unwritten, "not implemented"), (written, "passed")):
            adapters.write_text(text)
            terminal.expect(rf"{problem} +{state}.*q quit")
        terminal.send("q")
        terminal.expect(pexpect.EOF)
    except pexpect.ExceptionPexpect:
        raise CourseworkError(f"`uv {' '.join(command)}` did not go on after this:\n{terminal.before}") from None
    finally:
        terminal.close(force=True)
    if terminal.exitstatus != 0:
        raise CourseworkError(f"`uv {' '.join(command)}` ended with status {terminal.exitstatus} after q")


def _make_environment() -> dict[str, str]:
    """Return the variables without what names the environment of the solved tree, or keeps it from being written to."""
    return {name: value for name, value in os.environ.items() if name not in OF_THE_SOLVED_TREE}


def _run(folder: Path, *command: str, environment: dict[str, str] | None = None) -> None:
    environment = environment or _make_environment()
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        output = (process.stdout + process.stderr).strip()
        raise CourseworkError(f"`{' '.join(command)}` ended with status {process.returncode}:\n{output}")
