"""Walking through a handout as a student does: read what to write, write that, run the tests again.

Each problem is solved by itself and in its turn, so that a file which needs what a later problem writes, or what went
with the solution, is found.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from cs336_kit.checking.runner import Forks, Run
from cs336_kit.engine.assignment import Problem, load_problems
from cs336_kit.engine.result import Check, Result
from cs336_staff.release.handout import stub

IMPORT_ALL = """
import pkgutil
from importlib import import_module
import adapters, cs336_basics
for module in pkgutil.walk_packages(cs336_basics.__path__, "cs336_basics."):
    import_module(module.name)
"""


class WalkError(Exception):
    """A student would be stuck; the message says where."""


def walk(root: Path, tree: Path) -> int:
    """Solve the handout in `tree`, a function at a time, with the solution in `root`.

    Returns:
        The number of functions that a student was asked for.

    Raises:
        WalkError: a file cannot be imported beside the stubs, a test fails for another reason than that something is
            not written yet, or a problem asks for what is not in its files.
    """
    imported = subprocess.run([sys.executable, "-c", IMPORT_ALL], cwd=tree, capture_output=True, text=True, check=False)
    if imported.returncode != 0:
        raise WalkError(f"as handed out, a file cannot be imported: {imported.stderr.strip().splitlines()[-1]}")
    problems = list(load_problems(tree).values())
    lines: SimpleQueue[dict[str, Any]] = SimpleQueue()
    forks = Forks(tree, lines.put)
    written: defaultdict[str, set[str]] = defaultdict(set)
    runs = 0

    def results(chosen: list[Problem]) -> list[Result]:
        nonlocal runs
        runs += 1
        run = Run(runs)
        forks.start(runs, [problem.id for problem in chosen])
        while run.status is None:
            run.hear(lines.get())
        return run.results_or_error()

    try:
        for number, problem in enumerate(problems):
            came = results(problems[number:])
            if odd := [result for result in came if result.check is not Check.NOT_WRITTEN]:
                what = odd[0].headline or "passes"
                raise WalkError(f"before {problem.id} is written, {odd[0].test} should ask for what is missing: {what}")
            came = [result for result in came if result.problem == problem.id]
            while missing := next((result for result in came if not result.passed), None):
                asked = re.fullmatch(r"not implemented yet: write (\S+) in (\S+), line \d+", missing.headline)
                if missing.check is not Check.NOT_WRITTEN or not asked or asked[1] in written[asked[2]]:
                    raise WalkError(f"while {problem.id} is written, {missing.test} says: {missing.headline}")
                function, file = asked.groups()
                if file not in ("adapters.py", *problem.files):
                    raise WalkError(f"{problem.id} asks for {function} in {file}, which is not one of its files")
                written[file].add(function)
                (tree / file).write_text(stub(file, (root / file).read_text(), written[file]))
                came = results([problem])
    finally:
        forks.close()
    return sum(map(len, written.values()))
