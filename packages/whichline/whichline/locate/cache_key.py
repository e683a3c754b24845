"""A cache whose key leaves out what its values depend on: the key, and the name that belongs in it."""

import ast
import linecache
from collections.abc import Iterator, Sequence

from whichline.engine.suite import Test
from whichline.locate.mutants import Mutable, Mutant
from whichline.locate.observed import Observed
from whichline.locate.repair import Function, Repair, find_outermost
from whichline.locate.run import Runner
from whichline.locate.trace import Trace


def find_key(runner: Runner, trace: Trace, failing: Sequence[Test]) -> tuple[Repair, list[Test]] | None:
    """Find the name that the key of a cache lacks; with that in it, a test passes after another one.

    Args:
        runner: runs the tests.
        trace: of a test that passes if it runs first.
        failing: the tests of the problem that fail.
    """
    mutants = list(_list_mutants(runner, trace))
    if not mutants or not (first := _find_first(runner, trace.test)):
        return None
    for function, mutant in mutants:
        with runner.observed.keeping():
            if function.passes(mutant, [first, trace.test]):
                repair = Repair(function, mutant)
                return repair, [test for test in failing if repair.passes(test)]
    return None


def _find_first(runner: Runner, test: Test) -> Test | None:
    """Find a test of the same problem after which another one fails."""
    for first in runner.suite.tests:
        if first.problem == test.problem and first != test and not first.memory:
            with runner.observed.keeping():
                if runner.run(first, {}, noting=False).passed and not runner.run(test, {}, noting=False).passed:
                    return first
    return None


def _list_mutants(runner: Runner, trace: Trace) -> Iterator[tuple[Function, Mutant]]:
    """Yield the functions that use a name as a key, with one more name in what is assigned to that."""
    for file, name in dict.fromkeys((place.file, find_outermost(place.function)) for place in trace.order):
        mutable = Mutable(ast.parse("".join(linecache.getlines(file))), name)
        keys = set(_list_keys(mutable.function))
        for node in ast.walk(mutable.function):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in keys:
                own = {ast.unparse(each) for each in ast.walk(node.value)}
                for each in _list_names(runner.observed, file, name):
                    new = ast.Tuple([node.value, ast.parse(each, mode="eval").body], ast.Load())
                    mutant = Mutant(node.value, f"`{each}` in the key", (node, "value", None), new)
                    yield from () if each in own else [(Function(runner, file, mutable), mutant)]


def _list_keys(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the names that are used as keys: `x[key]`, `x.get(key)`, `key in x`."""
    for node in ast.walk(function):
        match node:
            case ast.Subscript(slice=ast.Name(name)):
                yield name
            case ast.Call(ast.Attribute(attr="get" | "setdefault"), [ast.Name(name), *_]):
                yield name
            case ast.Compare(ast.Name(name), [ast.In() | ast.NotIn()]):
                yield name


def _list_names(observed: Observed, file: str, function: str) -> list[str]:
    """List the parameters of a function; of a method, also the attributes that its constructor sets."""
    node = observed.definitions[file, function]
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    init = observed.definitions.get((file, f"{function.rpartition('.')[0]}.__init__"))
    set_here = (each for each in ast.walk(init) if isinstance(each, ast.Attribute)) if init else ()
    attributes = [ast.unparse(each) for each in set_here if isinstance(each.ctx, ast.Store)]
    return [each for each in dict.fromkeys((*names, *attributes)) if each not in ("self", "cls")]
