"""Running tests with probes, and with replacements for the values of some expressions."""

import math
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor

from whichline.engine.case import dtype_of
from whichline.engine.compare import change_tensors
from whichline.engine.suite import Suite, Test
from whichline.locate.checkpoints import Checkpoints, list_leaves
from whichline.locate.deadline import Deadline
from whichline.locate.known import Known
from whichline.locate.observed import Observed
from whichline.locate.options import Option
from whichline.locate.pairs import Pair, Pairs
from whichline.locate.probe import Expression, Recorder
from whichline.locate.reference import REFUSED, Reference
from whichline.locate.trace import Trace
from whichline.locate.values import identify
from whichline.rules.pairing import INIT, list_parameters, remember

MOST_RUNS = 400  # of tests, for one problem: no plain explanation takes more
MOST_LOOKS = 200_000  # events, for one problem
MOST_NUMBERS = 1 << 25  # in the arguments of the calls whose checkpoints are kept
LONGEST = 1_000_000  # events in the first run; later ones, which may loop for ever, get a multiple of its count

Around = Callable[[str, Any, "Call"], AbstractContextManager[Any]]
Change = Callable[["Call", int, Any], Any]  # gets n and the n-th value; None keeps the value
Patch = Mapping[Expression, Change]
Watch = Callable[["Call", Expression], None]
T = TypeVar("T")


@dataclass
class Runner:
    """Runs tests on a copy of the student's code that has probes."""

    suite: Suite  # the tests, and what they call
    follow: Mapping[str, Reference]  # the references of the adapters
    observed: Observed  # the copy of the student's code
    pairs: Pairs = field(default_factory=dict)  # the student's functions that do the work of adapters
    lent: Collection[str] = ()  # adapters whose reference stands in for such a function
    deadline: Deadline = field(default_factory=Deadline)  # at which a student's search ends
    runs: int = 0
    looks: int = 0
    mutant_runs: int = 0
    shared: Collection[tuple[str, str]] | None = None  # the functions that tests of other problems run and pass
    seed: int = 0
    _longest: int = 0  # events after which a run ends; some tests make a table that the others find
    _slowest: dict[str, float] = field(default_factory=dict)  # processor time after which a run ends, by test
    _numbers: int = 0  # in the arguments of `_known`
    _known: dict[Hashable, Known] = field(default_factory=dict)
    _inner: dict[str, dict[str, Known]] = field(default_factory=dict)  # of first calls, by test and adapter
    _plain: dict[Hashable, Trace] = field(default_factory=dict)  # by the id of a test, and `lent`
    _seen: dict[Hashable, tuple[Test, Any]] = field(default_factory=dict)  # also by patch; holds the test, for its id

    @property
    def is_spent(self) -> bool:
        return self.runs >= MOST_RUNS or self.looks >= MOST_LOOKS or self.observed.is_stale or self.is_late

    @property
    def is_late(self) -> bool:
        return self.deadline.is_past

    def is_connecting(self, file: str) -> bool:
        """Tell whether a file only connects the tests with the code: then a mistake in it is looked for last."""
        return False

    def is_answered(self, place: Expression) -> bool:
        """Tell whether a right function computes an expression, or its object's constructor.

        The reference stands in for such a function, unless it returns more than its adapter.
        """
        kind, _, name = place.function.rpartition(".")
        pairs = self.pairs.get((place.file, place.function.partition(".<locals>")[0]), ())
        if any(each.part is not None and each.adapter in self.lent for each in pairs):
            return True
        if name != INIT:
            return False
        lent = [key for key, pairs in self.pairs.items() if any(each.adapter in self.lent for each in pairs)]
        return (place.file, kind) in {(file, each.rpartition(".")[0]) for file, each in lent}

    def passes(self, test: Test, patch: Patch) -> bool:
        """Tell whether a test passes with these replacements; one that limits memory has no checkpoints."""
        return not test.memory and self.see(test, patch, "passes", lambda then: then.passed, noting=False)

    def see(self, test: Test, patch: Patch, what: Hashable, look: Callable[[Trace], T], noting: bool = True) -> T:
        """Return `look(trace)` of a run with replacements; with an equal key `what`, the test does not run again."""
        key = id(test), frozenset(self.lent), frozenset(patch.items()), what
        if key not in self._seen:
            then = self.run(test, patch, noting)
            self._seen[*key[:3], "passes"] = test, then.passed
            self._seen[key] = test, look(then)
        return self._seen[key][1]

    def run(
        self,
        test: Test,
        patch: Patch,
        noting: bool = True,
        watch: Watch | None = None,
        around: Around | None = None,
        to_end: bool = False,
    ) -> Trace:
        """Run a test and record every expression in the last call of an adapter.

        Args:
            test: the test.
            patch: replacements.
            noting: whether to record values.
            watch: called at every event.
            around: returns a context manager for each call of an adapter.
            to_end: whether what runs after the call, such as a backward pass, is recorded, too.
        """
        self.runs += 1
        inner = self._inner.setdefault(test.name, {})
        asks = any(isinstance(each, Option) and not each.adapter for each in patch.values())
        call = Call(inner=dict(inner), asks=asks)
        puts = {place: partial(change, call) for place, change in patch.items()}
        recorder = Recorder(puts, noting, watch=watch and partial(watch, call))
        began = time.process_time() if noting and not puts else 0.0
        if self.lent or any(map(get_adapter, patch.values())):
            recorder.enter = partial(self._enter, test, call, recorder, patch)
        follow = partial(self._call, test, call, recorder, around, to_end)
        error = self._end(test, recorder, follow)
        self.looks += recorder.looks
        if noting and not puts:
            self._longest = max(self._longest, 1000 + 20 * recorder.looks)
            self._slowest[test.name] = 1 + 4 * (time.process_time() - began)
        passed = error is None and (recorder.has_put or not puts)
        if call.lacks & inner.keys():
            return self.run(test, patch, noting, watch, around, to_end)  # now the inner calls are known
        noted = recorder.values, recorder.objects, recorder.order, recorder.depths
        ended = call.given, call.came, error.with_traceback(None) if error else None, recorder.answers
        return Trace(test, *noted, call.arguments, call.known, passed, puts, *ended)

    def passes_as_is(self, test: Test) -> bool:
        """Tell whether a test passes; nothing is recorded, which takes half the time, and is no part of the budget."""
        return self._end(test, Recorder(noting=False)) is None

    def _end(self, test: Test, recorder: Recorder, follow: Callable[..., Any] | None = None) -> BaseException | None:
        """Run a test on the copy, whose adapters `follow` may call, and return the error that ended it."""
        recorder.limit = self._longest or LONGEST
        if math.isfinite(self.deadline.seconds):  # somebody waits
            recorder.deadline = Deadline(self._slowest.get(test.name, math.inf))
        students = self.suite.calls.adapters
        try:
            with self.observed.run(recorder):
                adapters = self.observed.adapters  # those of this run: a run may import the copy anew
                self.suite.calls.adapters = _Followed(adapters, follow, self.follow) if follow else adapters
                torch.default_generator.manual_seed(self.seed)
                return self.suite.ending(test)
        finally:
            recorder.end()  # also if the call raised
            recorder.enter = recorder.watch = None  # these refer back to the recorder, and would keep its values alive
            self.suite.calls.adapters = students

    def look(self, test: Test) -> Trace:
        """Return the trace of a test without replacements; the test runs once."""
        key = id(test), frozenset(self.lent)
        if key not in self._plain:
            self._plain[key] = self.run(test, {})
        return self._plain[key]

    def know(self, name: str, arguments: Mapping[str, Any], memory: bool = False, of: Hashable = None) -> Known:
        """Collect the known values in a call of an adapter; calls with equal arguments share them.

        Args:
            name: of the adapter.
            arguments: as they are when the call begins.
            memory: whether the test limits memory, which checkpoints would need.
            of: the call's key, if equal arguments alone do not make calls equal.
        """
        key = name, of, _identify(arguments)
        if key not in self._known:
            given = {name: x for name, x in arguments.items() if isinstance(x, Tensor | int | float)}
            self._numbers += sum(x.numel() for x in given.values() if isinstance(x, Tensor))
            if self._numbers > MOST_NUMBERS:
                self._known.clear()
                self._numbers = 0
            steps = Checkpoints() if memory else self.follow[name].compute_checkpoints(arguments)
            self._known[key] = Known(steps, given)
        return self._known[key]

    def _call(
        self,
        test: Test,
        call: "Call",
        recorder: Recorder,
        around: Around | None,
        to_end: bool,
        name: str,
        run: Any,
        *given: Any,
        **named: Any,
    ) -> Any:
        """Call an adapter, with the reference's checkpoints on the same arguments at hand."""
        recorder.begin()
        call.name = name
        call.given = self.suite.bind(run, given, named)
        call.arguments = copy_tensors(call.given)
        call.known = self.know(name, call.arguments, bool(test.memory), (test.name, call.number))
        _ = call.asks and call.known.steps.taken  # computed now, before the student's code changes settings
        call.known.steps.arguments.given = list_leaves(call.arguments)
        call.inner[name] = call.known
        self._inner[test.name].setdefault(name, call.known)  # for constructors that run before it
        call.number += 1
        call.came = None
        with around(name, run, call) if around else nullcontext():
            call.came = run(*given, **named)
        if not to_end:
            recorder.end()
        return call.came

    def _enter(
        self, test: Test, call: "Call", recorder: Recorder, patch: Patch, frame: FrameType, given: tuple[Any, ...]
    ) -> bool:
        """Find the checkpoints of an inner call, and the output if the reference stands in for it."""
        code = frame.f_code
        pairs = self.pairs.get((code.co_filename, code.co_qualname), ())
        if not pairs and code.co_name != INIT:
            return False
        try:
            parameters = dict(zip(list_parameters(code), given, strict=True))
            if code.co_name == INIT:
                remember(code, parameters)
            inner = [pair for pair in pairs if pair.adapter != call.name and not test.memory]
            is_answered = [self._know_inner(test, call, recorder, patch, pair, parameters) for pair in inner]
            return any(is_answered)
        except RecursionError:  # that is the student's
            raise
        except Exception as error:  # the student's code would take it for its own
            recorder.broken = recorder.broken or error
            return False

    def _know_inner(
        self, test: Test, call: "Call", recorder: Recorder, patch: Patch, pair: Pair, parameters: Mapping[str, Any]
    ) -> bool:
        """Collect the known values of an inner call; return whether the reference stands in for it."""
        if (arguments := pair.read(parameters, call.given)) is None:
            return False
        copies = copy_tensors(arguments)
        places = [place for place, change in patch.items() if get_adapter(change) == pair.adapter]
        try:
            known = self.know(pair.adapter, copies)
            if (places and not known.steps.taken) or known.steps.answer is None:
                return False
        except REFUSED:
            return False
        known.steps.arguments.given = list_leaves(arguments)
        call.inner[pair.adapter] = known
        self._inner[test.name].setdefault(pair.adapter, known)
        recorder.count_anew(places)
        if pair.adapter not in self.lent or pair.part is not None:
            return False
        recorder.answer = known.steps.give_answer(dtype_of(arguments))
        answer = known.steps.answer
        is_trusted = not call.known.steps.has_run(pair.adapter) and all(map(call.known.has, copies.values()))
        for part in (answer if isinstance(answer, tuple) else (answer,)) if is_trusted else ():
            call.known.trust(f"what {pair.adapter.rpartition('.')[2]} gives", part)
        return True


@dataclass(frozen=True)
class Experiment:
    """Failing tests, and the replacements that stay while others are tried."""

    runner: Runner
    failing: Sequence[Test]  # the most telling ones first
    patch: Patch = field(default_factory=dict)  # the replacements that stay
    total: int = 0  # how many tests of the problem fail
    before: dict[str, Trace] = field(default_factory=dict)  # traces with only these, by test

    def run(self, test: Test, change: Patch | None = None) -> Trace:
        """Run a test with one more change; without it, return the same trace each time."""
        if change:
            return self.runner.run(test, {**self.patch, **change})
        if not self.patch:
            return self.runner.look(test)
        if test.name not in self.before:
            self.before[test.name] = self.runner.run(test, self.patch)
        return self.before[test.name]

    def run_anew(self, test: Test, watch: Watch) -> Trace:
        """Run a test again, without one more change."""
        return self.runner.run(test, self.patch, watch=watch)

    def list_passing(self, change: Patch) -> list[Test]:
        """List the tests that pass with a replacement."""
        return [test for test in self.failing if self.run(test, change).passed]

    def passes(self, test: Test, change: Patch) -> bool:
        return self.runner.passes(test, {**self.patch, **change})

    def see(self, test: Test, change: Patch, what: Hashable, look: Callable[[Trace], T]) -> T:
        return self.runner.see(test, {**self.patch, **change}, what, look)

    def all_pass(self, change: Patch) -> bool:
        return all(self.passes(test, change) for test in self.failing)

    def add(self, change: Patch, failing: Sequence[Test] | None = None) -> "Experiment":
        """Return an experiment with one more change that stays, on the same tests or on these."""
        tests = self.failing if failing is None else failing
        return Experiment(self.runner, tests, {**self.patch, **change}, self.total)

    def only(self, tests: Collection[Test]) -> "Experiment":
        """Restrict the experiment to some of its tests."""
        return replace(self, failing=[test for test in self.failing if test in tests])


@dataclass
class Call:
    """The current call of an adapter."""

    name: str = ""
    number: int = 0
    inner: dict[str, Known] = field(default_factory=dict)  # of the latest inner call for each other adapter
    known: Known = field(default_factory=lambda: Known(Checkpoints()))
    arguments: Mapping[str, Any] = field(default_factory=dict)  # as they were when it began
    given: Mapping[str, Any] = field(default_factory=dict)  # the arguments themselves
    came: Any = None  # what it returned
    asks: bool = False  # whether a replacement needs its checkpoints
    lacks: set[str] = field(default_factory=set)  # the adapters whose checkpoints a replacement needed too early


@dataclass
class _Followed:
    """The student's adapters; those that have a reference are called by `call`."""

    students: Any
    call: Callable[..., Any]
    names: Collection[str]

    def __getattr__(self, name: str) -> Any:
        run = getattr(self.students, name)
        return partial(self.call, name, run) if name in self.names else run


copy_tensors = partial(change_tensors, change=Tensor.clone)


def _identify(x: Any) -> Hashable:
    """Make a key that is the same for equal arguments."""
    if isinstance(x, Mapping):
        return tuple((name, _identify(each)) for name, each in x.items())
    if isinstance(x, tuple | list):
        return type(x), *map(_identify, x)
    if isinstance(x, Tensor):
        return identify(x), x.requires_grad
    return type(x), x if isinstance(x, Hashable) else id(x)


def copy(call: Call, time: int, value: Any) -> Any:
    """Replace a tensor by a copy."""
    return value.clone() if isinstance(value, Tensor) else None


def get_adapter(change: Change) -> str:
    """Return the adapter whose reference a change uses; "" for the one that the test calls."""
    return change.adapter if isinstance(change, Option) else ""


def order_by_generality(tests: Sequence[Test]) -> list[Test]:
    """Put the most telling tests first: sizes that differ and are not 1, unordered positions; then the small ones."""

    def rank(test: Test) -> tuple[int, int, int]:
        for case in test.cases():
            tensors = [x for x in case.inputs.values() if isinstance(x, Tensor)]
            sizes = [size for x in tensors for size in x.shape]
            numbers = [x for x in case.inputs.values() if isinstance(x, int) and not isinstance(x, bool)]
            ones = sum(size <= 1 for size in (*sizes, *numbers)) + sum(x.shape[-1:] == (2,) for x in tensors)
            alike = len(numbers) - len(set(numbers)) + len({*numbers} & {*sizes}) + (len(set(sizes)) < 3)
            in_order = sum(torch.equal(x, torch.arange(x.numel())) for x in tensors if x.dtype == torch.int64)
            return ones + alike + in_order, len(tensors), sum(x.numel() for x in tensors) + sum(numbers)
        return len(tests), 0, 0

    return sorted(tests, key=rank)


def name_tensors(test: Test) -> list[str]:
    """List the names of the tensors in a test's first case."""
    return [name for case in test.cases()[:1] for name, x in case.inputs.items() if isinstance(x, Tensor)]


def choose_kinds(tests: Sequence[Test], most: int) -> list[Test]:
    """Choose tests that pass tensors for different arguments, then those of different functions, and then others."""
    inputs, kinds = dict[Hashable, Test](), dict[Hashable, Test]()
    for test in tests:
        names = (*name_tensors(test),)
        inputs.setdefault(names, test)
        kinds.setdefault((test.function, names), test)
    return [*dict.fromkeys((*inputs.values(), *kinds.values(), *tests))][:most]
