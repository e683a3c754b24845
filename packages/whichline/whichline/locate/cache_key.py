"""A cache whose key leaves out what its values depend on: the key, and the name that belongs in it."""

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from torch import Tensor

from whichline.engine.suite import Test
from whichline.locate.instrument import copy_whole
from whichline.locate.mutants import Mutable, Mutant, find_outermost
from whichline.locate.mutated import Function
from whichline.locate.named import span_of
from whichline.locate.observed import Observed
from whichline.locate.repair import Repair
from whichline.locate.run import Runner
from whichline.locate.source_location import read_tree
from whichline.locate.trace import Trace
from whichline.locate.unused_arguments import find_parameters


def find_key(runner: Runner, trace: Trace, failing: Sequence[Test]) -> tuple[Repair, list[Test]] | None:
    """Find the name that the key of a cache lacks: with it, a test that passes if it runs first also passes later."""
    mutants = list(_list_mutants(runner, trace))
    if not mutants or not (first := _find_first(runner, trace.test)):
        return None
    tests = [test for test in runner.suite.tests if test.problem == trace.test.problem]
    for function, mutant in mutants:
        passes = partial(function.passes, mutant, counts_lines=False)  # what is kept takes fewer lines
        with runner.observed.keeping():
            is_found = passes([first, trace.test])
        if is_found:
            alone = [test for test in tests if passes([test])]
            with runner.observed.keeping():
                if passes(alone):  # one after the other, so the key lacks nothing else
                    return Repair(function, mutant), [test for test in failing if test in alone]
    return None


def _find_first(runner: Runner, test: Test) -> Test | None:
    """Find a test of the same problem after which another one fails."""
    for first in runner.suite.tests:
        if first.problem == test.problem and first != test and not first.memory:
            with runner.observed.keeping():
                if runner.passes_as_is(first) and not runner.passes_as_is(test):
                    return first
    return None


def _list_mutants(runner: Runner, trace: Trace) -> Iterator[tuple[Function, Mutant]]:
    """Yield the functions that look up something under a key, with one more name in the key.

    A tensor is none: no two are the same key, so each call would miss.
    """
    tensors = {str(place) for place in trace.places if isinstance(trace.objects[place][-1], Tensor)}
    for file, name in dict.fromkeys((place.file, find_outermost(place.function)) for place in trace.order):
        mutable = Mutable(read_tree(file), name)
        keys: dict[str, list[ast.expr]] = {}
        for key in _list_keys(mutable.function):
            keys.setdefault(ast.unparse(key), []).append(key)
        for nodes in keys.values():
            own = {ast.unparse(each) for each in ast.walk(nodes[0])}
            for each in _list_names(runner.observed, file, name):
                if each not in own | tensors:
                    new = _Longer({span_of(node) for node in nodes}, each).visit(copy_whole(mutable.function))
                    mutant = Mutant(nodes[0], f"`{each}` in the key", mutable.slot, new)
                    yield Function(runner, file, mutable), mutant


def _list_keys(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what is used as a key: in `x[key]`, `x.get(key)` and `key in x`, or what is assigned to that name."""
    given: dict[str, list[ast.expr]] = {}
    keys: list[ast.expr] = []
    for node in ast.walk(function):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.NamedExpr(ast.Name(name), value):
                given.setdefault(name, []).append(value)
            case ast.Subscript(slice=key) if not isinstance(key, ast.Slice):
                keys.append(key)
            case ast.Call(ast.Attribute(attr="get" | "setdefault"), [key, *_]):
                keys.append(key)
            case ast.Compare(key, [ast.In() | ast.NotIn()]):
                keys.append(key.target if isinstance(key, ast.NamedExpr) else key)
    for key in keys:
        yield from given.get(key.id, ()) if isinstance(key, ast.Name) else (key,)


class _Longer(ast.NodeTransformer):
    """Adds a name to some expressions."""

    def __init__(self, spans: Collection[object], name: str) -> None:
        self._spans, self._name = spans, name

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.expr) or span_of(node) not in self._spans:
            return self.generic_visit(node)
        return ast.Tuple([node, ast.parse(self._name, mode="eval").body], ast.Load())


def _list_names(observed: Observed, file: str, function: str) -> list[str]:
    """List the parameters of a function; of a method, also the attributes that its constructor sets."""
    names = find_parameters(observed.definitions[file, function])
    init = observed.definitions.get((file, f"{function.rpartition('.')[0]}.__init__"))
    set_here = (each for each in ast.walk(init) if isinstance(each, ast.Attribute)) if init else ()
    attributes = [ast.unparse(each) for each in set_here if isinstance(each.ctx, ast.Store)]
    return [each for each in dict.fromkeys((*names, *attributes)) if each not in ("self", "cls")]
