"""Judging each call of a function that does the work of an adapter.

Such a call is right if it returns what the adapter's reference returns on the same arguments, even if these are wrong.
A right call counts as one expression: the mistake is elsewhere. A wrong call is searched with its own reference.
"""

import inspect
from collections.abc import Collection, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import same
from whichline.engine.suite import Test
from whichline.locate.pairs import Pair, Pairs, find_sizes
from whichline.locate.probe import is_plain
from whichline.locate.reference import REFUSED
from whichline.locate.run import Call, Patch, Runner, copy_tensors, name_tensors, order_by_generality
from whichline.locate.values import CLOSE, is_equal
from whichline.rules.pairing import INIT, Lesson, Source, list_parameters, remember

LESSONS = 2  # for each adapter
PARTS = 2  # of a function's result, one of which may be what the adapter returns
OF_HALF = 8  # eps of half precision: how far rounding may move an output


def pair_functions(runner: Runner, adapters: Collection[str]) -> Pairs:
    """Find the functions that do the work of some adapters, by calling each adapter."""
    pairs: dict[tuple[str, str], list[Pair]] = {}
    for adapter in adapters:
        for test in _choose_lessons(runner.suite.tests, adapter):
            for code, pair in _learn(runner, test, adapter):
                known = pairs.setdefault((code.co_filename, code.co_qualname), [])
                if all(each.adapter != adapter for each in known):
                    known.append(pair)
    return pairs


def _choose_lessons(tests: Sequence[Test], adapter: str) -> list[Test]:
    """Choose the tests that call an adapter with the most tensors, the most telling ones first."""
    lessons = [test for test in tests if not test.memory and any(case.call == adapter for case in test.cases()[:1])]
    return sorted(order_by_generality(lessons), key=lambda test: len(name_tensors(test)), reverse=True)[:LESSONS]


def _learn(runner: Runner, test: Test, adapter: str) -> list[tuple[CodeType, Pair]]:
    found: list[tuple[CodeType, Pair]] = []

    @contextmanager
    def around(name: str, run: Any, call: Call) -> Any:
        own = getattr(inspect.unwrap(run), "__code__", None)
        lesson = Lesson(own, call.arguments, runner.observed.is_students, PARTS)
        try:
            with lesson:
                yield
        finally:
            code, sources = lesson.code or own, lesson.sources or {each: Source(each) for each in call.arguments}
            plain = {each: x for each, x in call.arguments.items() if each not in sources}
            if name == adapter and code:
                found.append((code, Pair(adapter, sources, plain, find_sizes(plain, call.arguments), lesson.part)))

    runner.run(test, {}, noting=False, around=around)
    return found


@dataclass
class Calls:
    """The calls of paired functions that some tests make."""

    # adapters whose function is right in every call, and got the fractions of the adapter that the test calls
    right: set[str] = field(default_factory=set)
    wrong: dict[str, list[Case]] = field(default_factory=dict)  # by adapter: its function's wrong calls, as test cases


def judge_calls(runner: Runner, tests: Sequence[Test], patch: Patch | None = None) -> Calls:
    """Compare each call of a paired function in some tests with the reference of its adapter.

    Raises:
        Exception: an error of ours.
    """
    judged: dict[str, list[bool | None]] = {}
    wrong: dict[str, list[Case]] = {}
    other: set[str] = set()
    for test in tests:
        watches: list[_Watch] = []

        def around(name: str, run: Any, call: Call, watches: list[_Watch] = watches) -> _Watch:
            watches.append(_Watch(runner, call))
            return watches[-1]

        runner.run(test, patch or {}, noting=False, around=around)
        for watch in watches:
            other |= watch.other
            for adapter, is_right, case in watch.judged:
                judged.setdefault(adapter, []).append(is_right)
                if is_right is False and case:
                    wrong.setdefault(adapter, []).append(case)
    right = {adapter for adapter, verdicts in judged.items() if all(verdicts)} - other
    known = {adapter: wrong[adapter] for adapter in judged if None not in judged[adapter] and adapter in wrong}
    return Calls(right, known)


class _Watch:
    """Judges the calls of paired functions while an adapter is called."""

    def __init__(self, runner: Runner, call: Call) -> None:
        self._runner, self._call = runner, call
        self._stack: list[tuple[FrameType, list[tuple[Pair, dict[str, Any] | None, dict[str, Any]]]]] = []
        self.judged: list[tuple[str, bool | None, Case | None]] = []
        self.other: set[str] = set()

    def __enter__(self) -> "_Watch":
        assert self._runner.observed.recorder
        self._recorder = self._runner.observed.recorder
        self._before = self._recorder.enter
        self._recorder.enter, self._recorder.leave = self._enter, self._leave
        return self

    def __exit__(self, *_: object) -> None:
        self._recorder.enter, self._recorder.leave = self._before, None
        if self._stack:  # these calls raised
            self._leave(self._stack[0][0], None)

    def _enter(self, frame: FrameType, given: tuple[Any, ...]) -> bool:
        if self._before and self._before(frame, given):
            return True
        try:
            self._note(frame, dict(zip(list_parameters(frame.f_code), given, strict=True)))
        except RecursionError:  # that is the student's
            raise
        except Exception as error:  # the student's code would take it for its own
            self._recorder.broken = self._recorder.broken or error
        return False

    def _note(self, frame: FrameType, given: Mapping[str, Any]) -> None:
        code = frame.f_code
        if code.co_name == INIT:
            remember(code, given)
        pairs = self._runner.pairs.get((code.co_filename, code.co_qualname), ())
        called = [(pair, pair.read(given, self._call.given)) for pair in pairs if pair.adapter != self._call.name]
        if called:
            self._stack.append((frame, [(pair, found, copy_tensors(found or {})) for pair, found in called]))

    def _leave(self, frame: FrameType, answer: Any) -> None:
        try:
            while any(each is frame for each, _ in self._stack):  # the calls above it raised
                answered = answer if self._stack[-1][0] is frame else None
                for pair, arguments, copies in self._stack.pop()[1]:
                    self._judge(pair, arguments, copies, answered)
                    self._compare(pair, copies)
        except Exception as error:
            self._recorder.broken = self._recorder.broken or error

    def _judge(self, pair: Pair, arguments: dict[str, Any] | None, copies: dict[str, Any], answer: Any) -> None:
        verdict, case = None, None
        if arguments is not None and all(is_equal(x, copies[name]) for name, x in arguments.items()):
            try:
                right = self._runner.know(pair.adapter, copies).steps.answer
            except REFUSED:
                right = None
            verdict = judge(pair.see(answer), right, copies)
            if verdict is False and (expected := pair.expect(right)):
                name = f"{pair.adapter} in {self._call.name}"
                detached = {name: x.detach() if isinstance(x, Tensor) else x for name, x in copies.items()}
                case = Case(name, pair.adapter, detached, None, expected)
        self.judged.append((pair.adapter, verdict, case))

    def _compare(self, pair: Pair, arguments: Mapping[str, Any]) -> None:
        """Note if a function gets another fraction than the adapter that the test calls."""
        for name in arguments.keys() & self._call.given.keys() & pair.sources.keys():
            here, there = arguments[name], self._call.given[name]
            if type(here) is type(there) is float and here != there:
                self.other.add(pair.adapter)


def judge(answer: Any, right: Any, arguments: Mapping[str, Any]) -> bool | None:
    """Tell whether an output is right, within the precision of the arguments; None if that cannot be known."""
    if isinstance(right, tuple) and isinstance(answer, tuple):
        parts = [judge(one, other, arguments) for one, other in zip(answer, right, strict=False)]
        return None if None in parts or len(answer) != len(right) else all(parts)
    if not isinstance(answer, Tensor) or not isinstance(right, Tensor) or not is_plain(answer):
        return None
    if answer.shape != right.shape:
        return False
    dtypes = [x.dtype for x in arguments.values() if isinstance(x, Tensor) and x.is_floating_point()]
    within = max([CLOSE, *(OF_HALF * torch.finfo(dtype).eps for dtype in dtypes if torch.finfo(dtype).bits < 32)])
    return bool(same(answer, right, within).all())
