"""Errors carried forward: whoever builds a right function on a wrong one pays for the wrong one alone.

A test that failed is asked once more, while the right program answers in the place of the submission's own functions
for those earlier problems whose own tests failed. It answers on this side, and only what the right program asks of it
for the same question: the same function on vectors of the same length, and no more numbers in all. So whatever passes
has done the later problem's own work, and the worker learns nothing but what a right earlier function would have said.
"""

import inspect
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from whichline.engine.compare import in_dtype
from whichline.engine.result import Check, Outcome, Result
from whichline_grader.authoring.spec import Adapter, load_specs, reference_of
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.grading.transcripts import Right, compute_right_reply
from whichline_grader.sandbox.inside.frames import FrameError, apply, decode, encode, expect, pack, parse_header, unpack
from whichline_grader.sandbox.remote_call import RemoteCall

MOST_REQUESTS, MOST_REFUSED = 500, 5_000  # for one question: then nothing more is lent, and then it is no program
MOST_TENSORS = 8  # in one request, if no lesson has more
Lessons = Sequence[tuple[RemoteCall, Sequence[str]]]


@dataclass(frozen=True)
class RecordedCall:
    """A call that the right program makes of an earlier one."""

    call: str
    arguments: Mapping[str, Any]
    size: int  # how many numbers come back


@cache
def list_calls(remote_call: RemoteCall) -> list[RecordedCall]:
    """The calls of other problems' references that the right program makes for a question, in its own words."""
    codes, own = _find_codes(), reference_of(remote_call.call)
    _, its_own = codes[inspect.unwrap(own).__code__]
    of_others = {code: right for code, (right, problem) in codes.items() if problem != its_own}
    made: list[RecordedCall] = []

    def look(frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and frame.f_code in of_others:
            given = {name: frame.f_locals[name] for name in frame.f_code.co_varnames[: frame.f_code.co_argcount]}
            made.append(RecordedCall(of_others[frame.f_code].__name__, given, _count(value)))

    widened, before = [in_dtype(each, torch.float64) for each in remote_call.recorded], sys.getprofile()
    sys.setprofile(look)
    try:
        with torch.no_grad():
            apply(own, widened, remote_call.names)
    finally:
        sys.setprofile(before)
    return made


@cache
def _find_codes() -> Mapping[CodeType, tuple[Adapter, str]]:
    """The references by their code, each with its problem."""
    rights = ((right, id) for id, spec in load_specs().items() for right in (*spec.answers, *spec.helpers))
    return {inspect.unwrap(right).__code__: (right, id) for right, id in rights}


def count_vectors(arguments: Iterable[Any]) -> int:
    """Count the vectors that some tensors are made of when they are broadcast: what computing on them takes."""
    shapes = [x.shape[:-1][::-1] for x in arguments if isinstance(x, Tensor)]
    return math.prod(max(sizes) for sizes in zip_longest(*shapes, fillvalue=1))


def _count(value: Any) -> int:
    return sum(map(_count, value)) if isinstance(value, tuple | list) else value.numel()


class StandIn:
    """Answers what a submission asks of earlier problems, and keeps which adapters that were, by question."""

    def __init__(self, lessons: Lessons) -> None:
        self.lessons, self.used = lessons, defaultdict[RemoteCall, set[str]](set)
        self._carried = {lesson.call for lesson, _ in lessons}
        self._most_tensors = max([MOST_TENSORS, *(len(lesson.packed[1]) for lesson, _ in lessons)])
        self._token, self._requests = "", 0

    def begin(self, remote_call: RemoteCall, token: str) -> None:
        self._token, self._requests, self._given = token, 0, list[Right]()
        self._made = [made for made in list_calls(remote_call) if made.call in self._carried]
        self._left, self._work = Counter[str](), Counter[str]()
        times = 1 if remote_call.cotangents is None else 2  # a gradient of one's own computes anew what it forgot
        for made in self._made:
            self._left[made.call] += times * made.size
            self._work[made.call] += count_vectors(made.arguments.values())
        self._used = self.used[remote_call]

    def drop(self, lesson: tuple[RemoteCall, Sequence[str]]) -> None:
        """Lend nothing that is learned from a lesson, as from one that ends the worker."""
        self.lessons = [each for each in self.lessons if each is not lesson]

    def reply(self, raw: tuple[bytes, bytes], token: str) -> bytes | None:
        header = parse_header(raw[0])
        if "borrow" not in header:
            return None
        if header.get("token") != token:
            raise FrameError("what is borrowed does not have the token of its question")
        self._requests += 1
        count = len(expect(list, header.get("tensors"), "tensors"))
        if self._requests > MOST_REFUSED or count > self._most_tensors:
            raise FrameError("more is borrowed than any program can need")
        tensors = unpack(header["tensors"], raw[1])
        if token != self._token or self._requests > MOST_REQUESTS:
            return pack({})
        try:
            return self._differentiate(header, tensors) if "cotangents" in header else self._answer(header, tensors)
        except FrameError:
            raise
        except Exception:  # what does not fit is left to its own function
            return pack({})

    def _answer(self, header: dict[str, Any], tensors: list[Tensor]) -> bytes:
        for tensor, about in zip(tensors, header["tensors"], strict=True):
            tensor.requires_grad_(about.get("requires_grad") is True and tensor.is_floating_point())
        call, asked = str(header["borrow"]), expect(dict, header.get("arguments"), "arguments by name")
        arguments = self._fill_in(call, {name: decode(x, tensors) for name, x in asked.items()})
        if arguments is None or count_vectors(arguments) > self._work[call]:
            return pack({})
        right = compute_right_reply(reference_of(call), arguments)
        self._left[call] -= sum(output.numel() for output in right.outputs)
        if self._left[call] < 0:
            return pack({})
        self._given.append(right)
        self._used.add(call)
        return pack({"value": right.reply.value, "number": len(self._given) - 1}, right.reply.outputs)

    def _differentiate(self, header: dict[str, Any], tensors: list[Tensor]) -> bytes:
        cotangents = [decode(each, tensors) for each in expect(list, header["cotangents"], "cotangents")]
        right = self._given[expect(int, header["borrow"], "a number")]
        for output, cotangent in zip(right.reply.outputs, cotangents, strict=True):
            if cotangent is not None and (cotangent.shape, cotangent.dtype) != (output.shape, output.dtype):
                raise FrameError("a gradient is borrowed by something of another shape")
        gradients: list[Tensor] = []
        return pack({"gradients": [encode(each, gradients) for each in right.differentiate(cotangents)]}, gradients)

    def _fill_in(self, call: str, asked: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The arguments of a call, if it is like one that the right program makes, from which plain values come."""
        for made in (each for each in self._made if each.call == call):
            needed = {name for name, x in made.arguments.items() if isinstance(x, Tensor)}
            alike = (_is_like(x, made.arguments[name], asked) for name, x in asked.items())
            if needed <= asked.keys() <= made.arguments.keys() and all(alike):
                return tuple({**made.arguments, **asked}.values())
        return None


def _is_number(x: object) -> bool:
    return isinstance(x, Tensor) and x.dtype != torch.bool


def _is_like(given: Any, right: Any, asked: Mapping[str, Any]) -> bool:
    """Tell whether an argument is one that the right program might give; any mask, or none, will do."""
    if isinstance(given, Tensor) and isinstance(right, Tensor) and _is_number(given) == _is_number(right):
        if given.is_floating_point() != right.is_floating_point() or (_is_number(given) and not given.numel()):
            return False
        return given.shape[-1:] == right.shape[-1:] or not _is_number(given)
    if isinstance(given, Tensor) or isinstance(right, Tensor):
        return not (_is_number(given) or _is_number(right)) and (given is None or right is None)
    if type(given) is type(right) is int and right < 0:  # an axis, counted from the other end
        return given == right or any(given - x.ndim == right for x in asked.values() if isinstance(x, Tensor))
    return type(given) is type(right) and given == right


def find_lessons(graded: GradedSuite, results: Sequence[Result]) -> Lessons:
    """A public question for each adapter of the problems whose own tests failed, if something of them is written.

    What the handout names besides is found by its name.
    """
    wrong = {result.problem for result in results if not result.passed and result.check is not Check.NOT_WRITTEN}
    asked: dict[str, list[RemoteCall]] = {}
    for test in graded.suite.tests:
        for remote_call in graded.remote_calls[test.name] if test.problem in wrong and not test.hidden else ():
            asked.setdefault(remote_call.call, []).append(remote_call)
    lessons = [max(each, key=_count_distinctions) for each in asked.values()]
    helpers = [each for id, spec in load_specs().items() if id in wrong for each in spec.helpers]
    lessons += [RemoteCall(each.__name__, ()) for each in helpers]
    return [(lesson, _name_arguments(lesson)) for lesson in lessons]


def _name_arguments(remote_call: RemoteCall) -> Sequence[str]:
    """The names of its arguments, and after them of those that it leaves out."""
    parameters = [*inspect.signature(reference_of(remote_call.call)).parameters]
    positional = parameters[: len(remote_call.arguments) - len(remote_call.names)]
    return list(dict.fromkeys((*positional, *remote_call.names, *parameters)))


def _count_distinctions(remote_call: RemoteCall) -> tuple[int, int]:
    """Count what distinguishes the arguments: tensors, and sizes that differ."""
    tensors = [each for each in remote_call.arguments if isinstance(each, Tensor)]
    return len(tensors) if not remote_call.memory else 0, len({size for each in tensors for size in each.shape})


def choose_tests(graded: GradedSuite, results: Sequence[Result], lessons: Lessons) -> dict[str, set[str]]:
    """The tests that failed and for which the right program calls what there is a lesson of, each with what that is."""
    carried = {lesson.call for lesson, _ in lessons}
    failed = [each.test for each in results if not (each.passed or each.outcome is Outcome.VIOLATION)]
    asked = {test: each[0].call for test in failed if (each := graded.remote_calls[test])}
    calls = {call: carried & _list_names(graded, call) for call in {*asked.values()}} if carried else {}
    return {test: calls[call] for test, call in asked.items() if calls.get(call)}


def _list_names(graded: GradedSuite, call: str) -> set[str]:
    """The adapters that the right program calls for another one: for what is asked of it in little memory, too."""
    asked = (each for remote_calls in graded.remote_calls.values() for each in remote_calls if each.call == call)
    return {made.call for each in asked if not each.memory for made in list_calls(each)}
