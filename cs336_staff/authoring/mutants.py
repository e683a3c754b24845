"""Mutants of the solution: one that survives every test is a test that is missing, or no mistake at all.

mutmut makes them. Its own runner starts the tests anew for each one; here they are collected once, and a mutant is put
in the place of the solution's functions.
"""

import inspect
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import ndiff
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

from mutmut.mutation.file_mutation import create_mutations, deep_replace

from cs336_staff.authoring.rehearsal import PUBLIC, Rehearse, with_collected

MUTATED = (
    "cs336_basics.nn.functional",
    "cs336_basics.nn.linear",
    "cs336_basics.nn.rope",
    "cs336_basics.nn.attention",
)
TESTS = Path("cs336_staff/tests")
SUITE = (
    PUBLIC,
    TESTS / "solution/test_functional.py",
    TESTS / "solution/test_modules.py",
    TESTS / "solution/test_blockwise.py::test_multi_head_attention_gives_the_same_numbers_blockwise",
)
# The types of the handout are off, and two runs of hypothesis draw the same.
OPTIONS = (
    f"--deselect={TESTS}/solution/test_functional.py::test_types_refuse_what_does_not_fit",
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


def verify_mutants(root: Path, names: Sequence[str] = MUTATED) -> tuple[int, list[str]]:
    """How many mutants of some modules were tried, and what is wrong: survivors not listed, and listed ones killed.

    Raises:
        RuntimeError: the solution itself fails.
    """
    adapters = import_module("adapters")
    solution = {name: function for name, function in vars(adapters).items() if name.startswith("run_")}
    modules = {name: import_module(name) for name in names}
    mutants = [
        mutant
        for name, module in modules.items()
        for mutant in mutants_of(name, Path(inspect.getfile(module)).read_text())
    ]

    def survivors(rehearse: Rehearse) -> set[tuple[str, str]]:
        if failed := rehearse(solution, until_first_failure=True).failed:
            raise RuntimeError(f"the solution itself fails {', '.join(failed)}")
        found = set()
        for mutant in mutants:
            with _in_place(modules[mutant.module], mutant.source):
                if not rehearse(solution, until_first_failure=True).failed:
                    found.add((mutant.module, mutant.line))
        return found

    survived = with_collected(root, survivors, SUITE, *OPTIONS)
    listed = {(module, line) for module, line in equivalents() if module in modules}
    complaints = [f"{module}: no test fails with the line {line}" for module, line in sorted(survived - listed)]
    complaints += [f"{module}: listed as equivalent and is not: {line}" for module, line in sorted(listed - survived)]
    return len(mutants), complaints


def equivalents() -> set[tuple[str, str]]:
    """The mutants that are no mistakes, by module and line."""
    entries = tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8"))["equivalent"]
    return {(entry["module"], line) for entry in entries for line in entry["lines"]}


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
