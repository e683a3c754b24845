"""Repairs: one small change of the code that makes failing tests pass, where no value shows what is wrong.

Mutants are made of the functions that the failing tests run. Those nearest to the first unknown value come first. Each
is tried on one test before it is tried on all.
"""

import ast
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from traceback import walk_tb
from types import FrameType, MappingProxyType
from typing import Any

import torch

from whichline.engine.compare import WrongAnswer, same
from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.locate.alike import Names
from whichline.locate.changes import HIDDEN, Changes
from whichline.locate.mutants import EXCHANGED, Mutable, Mutant, find_outermost
from whichline.locate.mutated import KINDS, Function
from whichline.locate.observed import Correction, Observed
from whichline.locate.options import Options
from whichline.locate.probe import Expression
from whichline.locate.resemblance import are_in_zeros
from whichline.locate.run import Runner, choose_kinds, order_by_generality
from whichline.locate.source_location import count_failing, list_assignments, read_tree, show_place
from whichline.locate.trace import Trace
from whichline.locate.unpassed import list_unpassed

Line = tuple[str, str, int]  # file, function, number

MOST = 400  # runs of tests with mutants, for one repair
MOST_LOOKS = 500_000  # of expressions in these runs
MOST_PASSING = 12  # tests that must still pass
MOST_OTHERS = 6  # tests of each other problem that must still pass
ASK = "What should this be, by the formula?"
ASK_ORDER = "Which line should come first, and which values does each of them read?"


@dataclass(frozen=True)
class Repair:
    """A mutant that makes failing tests pass."""

    function: "Function"  # that it changes
    mutant: Mutant
    is_count: bool = False  # whether it changes a number of things

    @property
    def words(self) -> str:
        return f"With {self.mutant.words}"

    def passes(self, test: Test) -> bool:
        return self.function.passes(self.mutant, [test])

    def pass_in(self, patch: Options, runner: Runner, tests: Sequence[Test]) -> bool:
        """Tell whether tests of another problem, which its runner knows, all pass, with these replacements."""
        for test in tests if patch else ():
            runner.passes(test, patch)  # a mutant does not report inner calls, whose checkpoints are known from now on
        return Function(runner, self.function.file, self.function.mutable, patch).passes(self.mutant, tests)

    @property
    def place(self) -> Expression:
        """The changed expression or statement."""
        node = self.mutant.node
        return Expression(self.function.file, self.function.mutable.name, node, ast.unparse(node))  # type: ignore[arg-type]  (it stands in a line)

    def show(self, root: Path) -> dict[str, Any]:
        """Return the fields of a finding about the changed expression or statement."""
        place = self.place
        return show_place(place.file, place.function, place.node, root)


def find_repair(
    runner: Runner,
    failing: Sequence[Test],
    passing: Sequence[Test],
    near: Sequence[Line],
    trace: Trace | None = None,
    patience: int = 1,
    only: Callable[[Mutant], bool] = lambda mutant: True,
    patch: Options = MappingProxyType({}),
) -> Repair | None:
    """Find a change that makes all these failing tests pass, and none of the passing ones fail.

    Args:
        runner: runs the tests.
        failing: the most telling ones first.
        passing: a few of these are run, too.
        near: the lines to try first.
        trace: of a failing test, with the expressions that may change; the one with the fewest events, if not given.
        patience: how many times as long as usual to search.
        only: tells whether a mutant is tried.
        patch: replacements of values that are made, too.
    """
    is_given = trace is not None
    left = [test for test in failing if not (patch and runner.passes(test, patch))]
    trace = trace or min(map(runner.look, choose_kinds(left, KINDS)), key=lambda trace: len(trace.order), default=None)
    if trace is None or trace.passed:
        return None
    most = runner.mutant_runs + patience * min(MOST, MOST_LOOKS // (len(trace.order) + 1))
    others = [test for test in (*failing, *passing[:MOST_PASSING]) if test is not trace.test and not test.memory]
    tests = [trace.test, *others]
    adapters = {case.call for test in tests for case in test.cases()[:1]}
    adapters -= {find_outermost(name) for _, name, _ in near}
    ran = () if is_given or not isinstance(trace.error, WrongAnswer) else list_ran(runner, trace.test)
    likely = (HIDDEN,) if _is_in_zeros(runner.run(trace.test, patch) if patch else trace) else ()
    for repair in _list_repairs(runner, trace, near, ran, adapters, patch, likely):
        if runner.is_late or runner.mutant_runs >= most:
            return None
        if not only(repair.mutant) or not repair.function.passes(repair.mutant, tests):
            continue
        # A table that is too short may be longer than it must be.
        shifted = repair.mutant.list_shifted(repair.is_count) if isinstance(trace.error, WrongAnswer) else []
        is_by_chance = any(repair.function.passes(each, tests) for each in shifted)
        if not is_by_chance and not _breaks_others(runner, repair, failing[0]):
            return repair
    return None


def _is_in_zeros(trace: Trace) -> bool:
    """Tell whether all wrong numbers of an output are in rows that should be 0."""
    error, expected = trace.error, trace.test.cases()[0].expected
    came = error.answer.detach() if isinstance(error, WrongAnswer) and error.answer is not None else None
    right = expected.get(error.what) if isinstance(error, WrongAnswer) else None
    if came is None or right is None or came.shape != right.shape:
        return False
    return are_in_zeros(~same(came.double(), right.double()), right)


def _breaks_others(runner: Runner, repair: Repair, failing: Test) -> bool:
    """Tell whether tests of other problems pass without a repair, and fail with it: then it is in a wrong place."""
    function = Function(runner, repair.function.file, repair.function.mutable)
    others = _list_others(runner, failing.problem, MOST_OTHERS)
    failed = [test for test in others if not function.passes(repair.mutant, [test], counts_lines=False)]
    return any(map(runner.passes_as_is, failed))


def _list_shared(runner: Runner, problem: str) -> Collection[tuple[str, str]]:
    """List the outermost functions that tests of other problems run and pass, once for each problem."""
    if runner.shared is None:
        passing = filter(runner.passes_as_is, _list_others(runner, problem, 1))
        runner.shared = {(file, name) for test in passing for file, name, _ in list_ran(runner, test)}
    return runner.shared


def _list_others(runner: Runner, problem: str, most: int) -> list[Test]:
    """List a few tests of each other problem."""
    problems = dict[str, list[Test]]()
    for test in runner.suite.tests:
        if test.problem != problem and not test.memory:
            problems.setdefault(test.problem, []).append(test)
    return [test for tests in problems.values() for test in choose_kinds(order_by_generality(tests), most)]


def _list_repairs(
    runner: Runner,
    trace: Trace,
    near: Sequence[Line],
    ran: Collection[Line],
    adapters: Collection[str],
    patch: Options,
    likely: Collection[str],
) -> Iterator[Repair]:
    """Yield the mutants of the functions that ran: the likely kinds first, and of each kind the nearest ones.

    Where a line raises, those of the nearest function come first; otherwise the functions that right problems run, too,
    take turns with the others. These adapters come last, since they pass arguments on: a change there may make up
    for a mistake elsewhere. So may the sign of an argument, in any function.
    """
    parameters, found = _list_parameters(runner.observed), list[tuple[tuple[int, ...], bool, Repair]]()
    is_raised = not isinstance(trace.error, WrongAnswer)
    shared = () if is_raised else _list_shared(runner, trace.test.problem)
    for number, (file, name, lines) in enumerate(_list_functions(runner.observed, trace, near, ran)):
        mutable = Mutable(read_tree(file), name)
        function, is_last = Function(runner, file, mutable, patch), runner.is_connecting(file) or name in adapters
        is_shared = (file, name) in shared
        for mutant, is_count in _list_mutants(runner.observed, trace, file, mutable, parameters, ran):
            rank = -1 if mutant.words in likely else mutant.rank
            rank = 0 if is_raised else max(rank, 0) if is_shared else rank  # in these, none comes first
            kind = (mutant.is_sign_of_argument, is_last, rank)
            place = (number, rank, min(abs(mutant.line - each) for each in lines))
            found.append(((*kind, *place), is_shared, Repair(function, mutant, is_count)))
    turns, ordered = Counter[tuple[Any, ...]](), list[tuple[tuple[Any, ...], Repair]]()
    for (*kind, _, _, _), is_shared, repair in sorted(found, key=itemgetter(0)):
        turns[*kind, is_shared] += 1
        ordered.append(((*kind, turns[*kind, is_shared], is_shared), repair))
    yield from (repair for _, repair in sorted(ordered, key=itemgetter(0)))


def list_ran(runner: Runner, test: Test) -> dict[Line, None]:
    """List the lines of the student's that run in a test, those of computations and all others, in their order."""
    ran = dict[Line, None]()

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not runner.observed.is_students(code.co_filename):
            return None
        ran[code.co_filename, find_outermost(code.co_qualname), frame.f_lineno] = None
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        runner.passes_as_is(test)
    finally:
        sys.settrace(before)
    return ran


def _list_mutants(
    observed: Observed,
    trace: Trace,
    file: str,
    mutable: Mutable,
    parameters: Mapping[str, Sequence[str]],
    ran: Collection[Line],
) -> list[tuple[Mutant, bool]]:
    """List the mutants of a function that change what ran in a test, and whether they change a number of things."""
    tree, name = read_tree(file), mutable.name
    made = _list_constructed(tree, name)
    names = Names(trace, file, mutable, made)
    changes = Changes(
        names.list_alike,
        parameters,
        _list_imported(tree),
        names.is_counted,
        partial(names.list_of_kind, lambda kind: kind is float),
        partial(names.list_of_kind, lambda kind: isinstance(kind, tuple) and kind[2] is torch.bool),
        names.kinds.keys(),
        made.keys() - _list_read(tree, name),
        _group_calls(tree),
        mutable.unread,
        [*ast.walk(mutable.function)],
        partial(names.list_of_kind, _is_factor),
        lambda call: list_unpassed(observed, Expression(file, name, call, "")),
        name.endswith(".backward"),
    )
    lines = names.lines | {line for at, function, line in ran if (at, function) == (file, name)}
    mutants = [each for each in (*mutable.list_mutants(changes), *mutable.list_exchanges()) if each.line in lines]
    return [(each, names.is_counted(each.node)) for each in mutants]


def describe_repair(
    runner: Runner,
    tests: Sequence[Test],
    failing: Sequence[Test],
    passing: Sequence[Test],
    near: Sequence[Line],
    patch: Options = MappingProxyType({}),
    beside: Sequence[Finding] = (),
    only: Callable[[Mutant], bool] = lambda mutant: True,
) -> Finding | None:
    """Find a repair for some tests, beside the replacements of other findings; report it with all tests that pass."""
    if not (repair := find_repair(runner, tests, passing, near, patch=patch, only=only)):
        return None
    passed = [test for test in tests if not test.memory]
    explained = [test for test in failing if test in passed or repair.passes(test)]
    problem = tests[0].problem
    proof = f"{repair.words}, {'too, ' * bool(patch)}{count_failing(len(explained), len(failing), 'passes', 'pass')}."
    ask = ASK_ORDER if repair.mutant.words == EXCHANGED else ASK
    names, place = tuple(test.name for test in explained), repair.show(runner.suite.root)
    finding = Finding(
        problem, f"{problem}-repair", repair.mutant.sentences, proof=proof, question=ask, tests=names, **place
    )
    adapter = next((case.call for case in tests[0].cases()[:1]), "")
    inner = {place: replace(option, adapter=option.adapter or adapter) for place, option in patch.items()}
    runner.observed.corrections.append(Correction([*beside, finding], partial(repair.pass_in, inner)))
    return finding


def _list_functions(
    observed: Observed, trace: Trace, near: Sequence[Line], ran: Collection[Line]
) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yield the outermost functions that ran, the nearest first, each with the lines to begin at."""
    found, begins = dict[tuple[str, str], list[int]](), set(near)
    for file, name, line in (*near, *map(find_line, reversed(trace.places)), *ran):
        if file in observed.files:
            lines = found.setdefault((file, find_outermost(name)), [])
            if not lines or (file, name, line) in begins:
                lines.append(line)
    yield from ((file, name, lines) for (file, name), lines in found.items())


def find_line(place: Expression) -> Line:
    return place.file, place.function, place.line


def list_lines(error: BaseException) -> list[Line]:
    """List the lines in an error's traceback, the innermost first."""
    calls = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    return [(code.co_filename, code.co_qualname, line) for code, line in reversed(calls)]


def _list_constructed(tree: ast.Module, method: str) -> dict[str, str]:
    """List the attributes that a method's constructor sets, each with the name of what makes it: `nn.Linear`."""
    init = Mutable(tree, f"{method.rpartition('.')[0]}.__init__").function
    made = list_assignments(ast.walk(init))
    return {to: ast.unparse(value.func) for to, value in made if isinstance(value, ast.Call)}


def _list_read(tree: ast.Module, method: str) -> set[str]:
    """List the attributes that the class of a method reads."""
    kind = method.partition(".")[0]
    inside = (node for each in tree.body if getattr(each, "name", "") == kind for node in ast.walk(each))
    return {ast.unparse(each) for each in inside if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)}


def _group_calls(tree: ast.Module) -> dict[str, list[ast.Call]]:
    """List the calls in a file, by what they call."""
    found: dict[str, list[ast.Call]] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.Call):
            found.setdefault(ast.unparse(each.func), []).append(each)
    return found


def _is_factor(kind: Any) -> bool:
    """Tell whether a kind is that of a fraction, or of a tensor of fractions."""
    return kind is float or (isinstance(kind, tuple) and kind[2].is_floating_point)


def _list_imported(tree: ast.Module) -> set[str]:
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    return {(name.asname or name.name).partition(".")[0] for each in imports for name in each.names}


def _list_parameters(observed: Observed) -> dict[str, list[str]]:
    """List the parameters of functions and classes, by name."""
    found = {}
    for (_, name), node in observed.definitions.items():
        *outer, last = name.split(".")
        own = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        is_init = last == "__init__" and bool(outer)
        found[outer[-1] if is_init else last] = own[1:] if outer and own[:1] in (["self"], ["cls"]) else own
    return found
