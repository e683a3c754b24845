"""Mutants of the solution: one that survives every test is a test that is missing, or no mistake at all.

mutmut makes them. Its own runner starts the tests anew for each one; here both suites are loaded once, and a mutant is
put in the place of the solution's functions. What no graded test sees (devices, how weights are drawn, messages) is
left to the solution's own tests, which run in a fork.
"""

import inspect
import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from difflib import ndiff
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from mutmut.mutation.file_mutation import create_mutations, deep_replace

from cs336_kit.engine.assignment import SuiteError
from cs336_kit.engine.suite import Suite
from cs336_staff.release.stages import Stage
from cs336_staff.release.verify import run_suite

TESTS = Path(__file__).parents[1] / "tests" / "solution"
# What is mutated, the problems whose tests should see it, and staff's own tests of it.
MUTATED = {
    "cs336_basics.nn.functional": (("softmax", "scaled_dot_product_attention", "rope"), TESTS / "test_functional.py"),
    "cs336_basics.nn.linear": (("linear",), TESTS / "test_modules.py"),
    "cs336_basics.nn.rope": (("rope", "multihead_self_attention"), TESTS / "test_modules.py"),
    "cs336_basics.nn.attention": (
        ("multihead_self_attention", "attention_module", "multihead_attention"),
        TESTS / "test_modules.py",
    ),
}
# The types of the handout are off, as they are when grading; two runs draw the same.
OPTIONS = (
    "--override-ini=addopts=--import-mode=importlib -p cs336_kit.plugin -p no:cacheprovider",
    "-pno:unraisableexception",  # collects garbage until none is left, half a second in each fork
    "-k=not test_types_refuse_what_does_not_fit",
    "--hypothesis-seed=0",
)
EQUIVALENTS = Path(__file__).with_name("equivalent_mutants.toml")


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
    for mutation in mutations:
        if mutation.contained_by_top_level_function is not None:
            mutated = deep_replace(tree, mutation.original_node, mutation.mutated_node)
            assert isinstance(mutated, type(tree))
            code = mutated.code
            added = [line[2:].strip() for line in ndiff(source.splitlines(), code.splitlines()) if line[0] == "+"]
            yield Mutant(module, " ".join(added), code)


def verify_mutants(suite: Suite, stage: Stage, names: Sequence[str] = tuple(MUTATED)) -> None:
    """Try the mutants of some modules: an error is a survivor that is not listed, or a listed one that is killed.

    Raises:
        SuiteError: the solution itself fails.
    """
    solution = vars(import_module("adapters"))
    if failed := [result.test for result in run_suite(suite, solution) if not result.passed]:
        raise SuiteError(f"the solution itself fails {', '.join(failed)}")
    for own_tests in {MUTATED[name][1] for name in names}:
        if _run(own_tests) != 0:  # in this process: what a fork would have to import is there afterwards
            raise SuiteError(f"the solution itself fails {own_tests.name}")
    listed = {(module, line) for module, line in equivalents() if module in names}
    survived, kills = set[tuple[str, str]](), Counter[str]()
    modules = {name: import_module(name) for name in names}
    sources = {name: Path(inspect.getfile(module)).read_text() for name, module in modules.items()}
    for mutant in stage.track([mutant for name in names for mutant in mutants_of(name, sources[name])]):
        problems, own_tests = MUTATED[mutant.module]
        tests = [test for test in suite.tests if test.problem in problems]
        ordered = replace(suite, tests=sorted(tests, key=lambda test: -kills[test.name]))
        with _in_place(modules[mutant.module], mutant.source):
            last = run_suite(ordered, solution, until_first_failure=True)[-1]
            if not last.passed:
                kills[last.test] += 1  # it comes first from now on: most mutants fall to a few tests
                continue
            survives = _passes(own_tests)
        if survives and (found := (mutant.module, mutant.line)) not in survived:
            survived.add(found)
            if found not in listed:
                stage.error(f"{mutant.module}: no test fails with the line {mutant.line}")
    for module, line in sorted(listed - survived):
        stage.error(f"{module}: listed as equivalent, but is not: {line}")


def equivalents() -> set[tuple[str, str]]:
    """The mutants that are not mistakes, by module and line."""
    entries = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8"))["equivalent"]
    return {(entry["module"], line) for entry in entries for line in entry["lines"]}


def _passes(tests: Path) -> bool:
    """Tell whether the mutant that is in place passes what staff test the solution with."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _run(tests)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return status == 0


def _run(tests: Path) -> int:
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        return int(pytest.main(["-x", "--quiet", *OPTIONS, str(tests)]))


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
    inside = [member for x in owned if isinstance(x, type) for member in vars(x).values()]
    return {f.__qualname__: f for f in [*owned, *inside] if isinstance(f, FunctionType)}
