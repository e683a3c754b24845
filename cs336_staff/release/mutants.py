"""Mutants of the solution: one that survives every test is a test that is missing, or no mistake at all.

mutmut makes them. Its own runner starts the tests anew for each one; here both suites are loaded once, and a mutant is
put in the place of the solution's functions. What no graded test sees (devices, how weights are drawn, messages) is
left to the solution's own tests, where a module has any.
"""

import inspect
import os
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from warnings import catch_warnings

import pytest
from libcst import CSTNode
from mutmut.mutation.file_mutation import create_mutations, deep_replace

from cs336_kit.engine.assignment import Problem, SuiteError
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.room import FOLDER
from cs336_staff.release.stages import Stage
from cs336_staff.release.verify import run_suite

TESTS = sorted((Path(__file__).parents[1] / "tests" / "solution").glob("test_*.py"))
# The types of the handout are off, as they are when grading; two runs draw the same.
OPTIONS = (
    "--override-ini=addopts=--import-mode=importlib -p cs336_kit.plugin -p no:cacheprovider",
    "-pno:unraisableexception",  # collects garbage until none is left, half a second in each run
    "--tb=no",
    "-k=not test_types_refuse_what_does_not_fit",
)


@dataclass(frozen=True)
class Mutant:
    """The solution with one change.

    Args:
        module: the module that is changed.
        line: what stands in the place of the line that is changed.
        source: the whole file.
    """

    module: str
    line: str
    source: str


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Every change that mutmut knows of the functions in a file."""
    tree, mutations, *_ = create_mutations(module, source)
    around = {function: each for each in tree.body for function in (each, *getattr(each.body, "body", ()))}
    for mutation in mutations:
        if function := mutation.contained_by_top_level_function:
            statement = around[function]  # all of the file would take as long again to replace and to print
            mutated = deep_replace(statement, mutation.original_node, mutation.mutated_node)
            assert isinstance(mutated, CSTNode)
            code = source.replace(tree.code_for_node(statement), tree.code_for_node(mutated))
            changed = unified_diff(source.splitlines(), code.splitlines(), n=0)
            added = [line[1:].strip() for line in changed if line[0] == "+"]
            yield Mutant(module, " ".join(added[1:]), code)  # the first names the file


def modules_of(problems: Mapping[str, Problem]) -> dict[str, set[str]]:
    """The modules that students write, with the problems whose tests see them: those that are written there."""
    modules = defaultdict[str, set[str]](set)
    for problem in problems.values():
        for file in problem.files:
            modules[file.removesuffix(".py").replace("/", ".")].add(problem.id)
    return dict(modules)


def own_tests_of(module: str) -> list[Path]:
    """Staff's own tests of a module of the solution, if any: in the files that import it."""
    return [path for path in TESTS if re.search(rf"^from {re.escape(module)} import", path.read_text(), re.MULTILINE)]


def verify_mutants(suite: Suite, stage: Stage, names: Collection[str] | None = None) -> None:
    """Try the mutants of modules: an error is a survivor that is not listed, or a listed one that is killed.

    Args:
        suite: the tests.
        stage: is told how far it is, and what is wrong.
        names: of the modules; None for all that students write for the suite's problems.

    Raises:
        SuiteError: the solution itself fails.
    """
    modules = {name: of for name, of in modules_of(suite.problems).items() if names is None or name in names}
    solution = vars(import_module("adapters"))
    if failed := [result.test for result in run_suite(suite, solution) if not result.passed]:
        raise SuiteError(f"the solution itself fails {', '.join(failed)}")
    own_tests = {name: own_tests_of(name) for name in modules}
    kills = Counter[str]()
    for path in {path for paths in own_tests.values() for path in paths}:
        if not _passes([path], kills):
            raise SuiteError(f"the solution itself fails {path.name}")
    listed = {(module, line) for module, line in equivalents() if module in modules}
    sources = {name: Path(inspect.getfile(import_module(name))).read_text() for name in modules}

    def survives(mutant: Mutant) -> bool:
        tests = [test for test in suite.tests if test.problem in modules[mutant.module]]
        ordered = replace(suite, tests=sorted(tests, key=lambda test: -kills[test.name]))
        with _in_place(import_module(mutant.module), mutant.source), catch_warnings(action="ignore"):
            last = run_suite(ordered, solution, until_first_failure=True)[-1]
            if not last.passed:
                kills[last.test] += 1  # it comes first from now on: most mutants fall to a few tests
                return False
            return not own_tests[mutant.module] or _passes(own_tests[mutant.module], kills)

    mutants = [mutant for name, source in sources.items() for mutant in mutants_of(name, source)]
    survived = set[tuple[str, str]]()
    for mutant, is_alive in zip(mutants, stage.map(survives, mutants, chunk=4), strict=True):
        if is_alive and (found := (mutant.module, mutant.line)) not in survived:
            survived.add(found)
            if found not in listed:
                stage.error(f"{mutant.module}: no test fails with the line {mutant.line}")
    for module, line in sorted(listed - survived):
        stage.error(f"{module}: listed as equivalent, but is not: {line}")


def equivalents() -> set[tuple[str, str]]:
    """The mutants that are not mistakes, by module and line, as the rooms list them."""
    lists = [tomllib.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*/equivalent_mutants.toml")]
    return {
        (module, line)
        for each in lists
        for module, reasons in each.items()
        for lines in reasons.values()
        for line in lines
    }


class KillersFirst:
    """A plugin for pytest: the tests that have failed most often come first, and the first that fails is noted."""

    def __init__(self, kills: Counter[str]) -> None:
        self.kills = kills

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: -self.kills[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.kills[report.nodeid] += report.failed


def _passes(tests: Sequence[Path], kills: Counter[str]) -> bool:
    """Tell whether the solution, or the mutant that is in place, passes what staff test it with."""
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        return pytest.main(["-x", "--quiet", *OPTIONS, *map(str, tests)], [KillersFirst(kills)]) == 0


@contextmanager
def _in_place(module: ModuleType, source: str) -> Iterator[None]:
    """Let the functions of a module, which others have imported, do what those of `source` do."""
    mutated: dict[str, object] = {"__name__": module.__name__}
    exec(compile(source, inspect.getfile(module), "exec"), mutated)  # noqa: S102 (ours)
    functions = _functions(vars(module), module.__name__)
    before = {name: (f.__code__, f.__defaults__, f.__kwdefaults__) for name, f in functions.items()}
    for name, mutant in _functions(mutated, module.__name__).items():
        f = functions[name]
        f.__code__, f.__defaults__, f.__kwdefaults__ = mutant.__code__, mutant.__defaults__, mutant.__kwdefaults__
    try:
        yield
    finally:
        for name, f in functions.items():
            f.__code__, f.__defaults__, f.__kwdefaults__ = before[name]


def _functions(namespace: dict[str, object], module: str) -> dict[str, FunctionType]:
    """The functions and methods that a module defines, by their qualified names."""
    owned = [x for x in namespace.values() if getattr(x, "__module__", None) == module]
    members = [member for x in owned if isinstance(x, type) for member in vars(x).values()]
    inside = [getattr(member, "__func__", member) for member in members]  # of a staticmethod too
    return {f.__qualname__: f for f in [*owned, *inside] if isinstance(f, FunctionType)}
