"""The questions of a suite, written down before there is a submission, and its tests run on the answers to them.

The tests run once on a right program: what they call there is what a submission is asked. It is asked all of it before
a test sees any reply, so that no reply can depend on a verdict. The tests can be run again on the `Transcript` without
running any code of the submission.
"""

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from traceback import FrameSummary
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from whichline.engine.compare import in_dtype, is_float
from whichline.engine.errors import StudentRaised
from whichline.engine.finding import Finding
from whichline.rules.watch import Use
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.authoring.spec import Adapter
from whichline_grader.grading.graded import Drawn, read_finding
from whichline_grader.sandbox.inside.frames import apply, encode
from whichline_grader.sandbox.inside.randomness import seeded
from whichline_grader.sandbox.interview import Interview
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.remote_call import Earlier, RemoteCall
from whichline_grader.sandbox.reply import KINDS, Failure, Line, NotAsked, Reply, WorkerStopped, check
from whichline_grader.sandbox.submission import Submission

RemoteCalls = Mapping[str, Sequence[RemoteCall]]
Replies = Mapping[str, Sequence[Reply]]

CARRIED_TO = " lent to "  # between functions and a test
LEVEL = 1  # of compression: numbers hardly get smaller


@dataclass(frozen=True)
class Right:
    """A right answer in float64, and what it depends on."""

    outputs: list[Tensor]
    given: list[Tensor]
    reply: Reply

    def differentiate(self, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        pairs = [(output, by) for output, by in zip(self.outputs, cotangents, strict=True) if by is not None]
        with torch.enable_grad():
            loss = torch.stack([(output * by).sum() for output, by in pairs]).sum()
            found = torch.autograd.grad(loss, self.given, allow_unused=True)
        return [None if gradient is None else gradient.to(pairs[0][1].dtype) for gradient in found]


def compute_right_reply(
    right: Adapter, arguments: Sequence[object], names: Sequence[str] = (), grad_enabled: bool = True
) -> Right:
    """Give what a right function does with some arguments, the last of these names: in float64, rounded to their dtype.

    Without floating-point numbers among them it is the default dtype.
    """
    wide = {id(each): _widen(each) for each in arguments}  # one that comes twice is one
    outputs: list[Tensor] = []
    with torch.set_grad_enabled(grad_enabled):
        value = encode(apply(right, [wide[id(each)] for each in arguments], names), outputs)
    tensors = [each for each in wide.values() if isinstance(each, Tensor)]
    dtype = next((each.dtype for each in arguments if is_float(each)), torch.get_default_dtype())
    rounded = [in_dtype(output.detach(), dtype) for output in outputs]
    differentiable = [output.requires_grad for output in outputs]
    reply = Reply(value=value, outputs=rounded, differentiable=differentiable, changed=[None] * len(tensors))
    return Right(outputs, [each for each in tensors if each.requires_grad], reply)


class Recorder:
    """Answers as a right program does, and keeps what it is asked.

    A call in little memory is kept and not answered: what comes after it would be no question.
    """

    def __init__(self, memory: int | None = None) -> None:
        self.remote_calls: list[RemoteCall] = []
        self.values: list[Any] = []
        self._memory = memory
        self._made: list[Right] = []

    def reply(self, call: RemoteCall) -> Reply:
        arguments = call.arguments
        kept = {id(each): self._find_earlier(each) or _keep(each) for each in arguments}  # one that comes twice is one
        asked = tuple(kept[id(each)] for each in arguments)
        pairs = zip(asked, arguments, strict=True)
        right = tuple(_keep(each) if isinstance(ask, Earlier) else ask for ask, each in pairs)
        self.remote_calls.append(replace(call, arguments=asked, memory=self._memory, recorded=right))
        if self._memory:
            self._count(-1, arguments)  # as large as what it is made of
            raise NotAsked("a rehearsal has no limit of memory")
        with seeded(call.seeds):
            self._made.append(compute_right_reply(RIGHT[call.call], arguments, call.names, call.grad_enabled))
        self._count(-1, self._made[-1].reply.outputs)
        return self._made[-1].reply

    def differentiate(self, number: int, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        self.remote_calls[number] = replace(self.remote_calls[number], cotangents=tuple(map(_keep, cotangents)))
        right = self._made[number]
        gradients = right.differentiate(cotangents)
        self._made[number] = replace(right, reply=replace(right.reply, gradients=gradients))
        self._count(number, gradients)
        return gradients

    def _count(self, number: int, answered: Sequence[object]) -> None:
        """Note how large the right answer to a question is."""
        size = sum(each.nbytes for each in answered if isinstance(each, Tensor))
        remote_call = self.remote_calls[number]
        self.remote_calls[number] = replace(remote_call, right_bytes=remote_call.right_bytes + size)

    @property
    def rounded_otherwise(self) -> list[Reply]:
        """The answers, with another last digit: as another right program might give them."""
        return [replace(each.reply, outputs=[*map(_round_otherwise, each.reply.outputs)]) for each in self._made]

    def _find_earlier(self, argument: object) -> Earlier | None:
        """Find an argument among the entries of earlier answers, if it is a tensor from there."""
        for remote_call, value in enumerate(self.values):
            for entry, each in enumerate(value if isinstance(value, list) else ()):
                if isinstance(each, Tensor) and each is argument:
                    return Earlier(remote_call, entry)
        return None


class Replayer:
    """Gives the answers that a submission has given."""

    def __init__(self, remote_calls: RemoteCalls, replies: Replies, submission: Submission) -> None:
        self._all_remote_calls, self._all_replies, self.submission = remote_calls, replies, submission
        self.start("")

    def start(self, name: str, answered: str = "") -> None:
        """Begin with a test of this name; its answers may have another one."""
        self.values: list[Any] = []
        self._remote_calls = self._all_remote_calls.get(name, ())
        self._replies = self._all_replies.get(answered or name, ())

    def reply(self, call: RemoteCall) -> Reply:
        number = len(self.values)
        remote_call = self._remote_calls[number] if number < len(self._replies) else None
        if remote_call is None or not remote_call.is_asked_by(call, self.values):
            raise NotAsked(f"{call.call} is not called with what the call before it gave")
        reply = self._replies[number]
        self._raise(reply.stopped or reply.failure)
        return reply

    def differentiate(self, number: int, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        remote_call, reply = self._remote_calls[number], self._replies[number]
        if not remote_call.has_cotangents(cotangents):
            raise NotAsked(f"the gradients of {remote_call.call} were asked with other cotangents")
        self._raise(reply.stopped or reply.failure or reply.gradient_failure)
        return reply.gradients

    def _raise(self, failure: WorkerStopped | Failure | None) -> None:
        if isinstance(failure, WorkerStopped):
            raise failure.with_traceback(None)
        if failure:
            lines = [(line, find_source(self.submission, line)) for line in failure.lines]
            frames = [FrameSummary(line.file, line.number, line.function, line=source) for line, source in lines]
            raise StudentRaised(failure.type, failure.message, frames)


def ask(interview: Interview, *groups: RemoteCalls) -> dict[str, list[Reply]]:
    """Ask all questions, those of a group when all of the groups before it are answered.

    What a test asks twice is asked the second time when all else of its group is answered, of a process that has seen
    nothing of it, and there twice: what comes again must be the same after a while, and elsewhere.
    """
    replies: dict[str, list[Reply]] = {}
    for remote_calls in groups:
        replies |= {name: [Reply()] * len(each) for name, each in remote_calls.items()}
        first, alone, again = [], [], []
        for name, each in remote_calls.items():
            for number, remote_call in enumerate(each):
                is_again = any(remote_call.is_same(other) for other in each[:number])
                (alone if remote_call.memory else again if is_again else first).append((name, number))
        for some in (first, alone, again, again):
            for name, number in some:
                replies[name][number] = interview.ask(remote_calls[name][number], list_values(replies[name][:number]))
            if some is not again:
                interview.end_worker()
    interview.end_worker()
    return replies


def list_values(replies: Iterable[Reply]) -> list[Any]:
    """List what the calls returned, None where one returned nothing."""
    return [None if reply.is_failed else reply.decoded for reply in replies]


def find_source(submission: Submission, place: Line | Use) -> str:
    return printable(submission.line(place.file, place.number))


def _keep(value: Any) -> Any:
    """The same, which does not depend on anything."""
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def _round_otherwise(x: Tensor) -> Tensor:
    return torch.nextafter(x, torch.full_like(x, torch.inf)) if x.is_floating_point() else x


def _widen(value: object) -> object:
    """In float64, as the references want it."""
    return value.detach().double().requires_grad_(value.requires_grad) if is_float(value) else value


class Provenance(NamedTuple):
    """What a record of answers belongs to."""

    content: str  # the digest of the submission
    seed: int  # where the hidden inputs came from
    asked: str  # the digest of everything else that an answer depends on


@dataclass
class Transcript:
    """All that was taken from a submission."""

    # to each test's questions, by its name; those to the import under "import"; those that were taken while earlier
    # problems were answered for it under a name that says which, of `name_carried`
    replies: dict[str, Sequence[Reply]] = field(default_factory=dict)
    # the functions that were answered for it then, by these names
    carried: dict[str, Sequence[str]] = field(default_factory=dict)
    explanations: tuple[Finding, ...] = ()  # what was found by a process that earns nothing
    trouble: str = ""  # why it found less than it might have
    figure: Drawn | None = None  # what was drawn of it, on one public case
    layer: str = "not run"  # the sandbox that it answered in
    workers: int = 0  # how many processes answered for it now

    def as_bytes(self, provenance: Provenance) -> bytes:
        """The record of the answers, below a line that says what they belong to, as `read_transcript` reads it."""
        entries = {name: [*map(_pack, each)] for name, each in self.replies.items()}
        explanations = [each.as_json() for each in self.explanations]
        about = _Record(entries, self.carried, explanations, self.trouble, self.figure, self.layer)
        return b"\n".join((json.dumps(provenance).encode(), zlib.compress(msgspec.msgpack.encode(about), LEVEL)))


class _Entry(msgspec.Struct):
    """One answer, as it came."""

    raw: tuple[bytes, bytes]
    printed: tuple[str, str]
    stopped: tuple[str, str] | None


class _Record(msgspec.Struct):
    """`Transcript`, as it is stored."""

    replies: dict[str, list[_Entry]]
    carried: dict[str, Sequence[str]]
    explanations: list[str]
    trouble: str
    figure: Drawn | None
    layer: str


def name_carried(functions: Collection[str], test: str) -> str:
    return f"{', '.join(sorted(functions))}{CARRIED_TO}{test}"


def read_provenance(record: bytes) -> Provenance | None:
    try:
        return Provenance(*json.loads(record.partition(b"\n")[0]))
    except (ValueError, TypeError, RecursionError):
        return None


def read_transcript(record: bytes, remote_calls: RemoteCalls, provenance: Provenance) -> Transcript | None:
    """The record, if it belongs to this; each answer is checked as it was when it came."""
    if read_provenance(record) != provenance:
        return None
    try:
        stored = msgspec.msgpack.decode(zlib.decompress(record.partition(b"\n")[2]), type=_Record)
        replies: dict[str, Sequence[Reply]] = {}
        for name, entries in stored.replies.items():
            found: list[Reply] = []
            asked = remote_calls.get(name.rpartition(CARRIED_TO)[2], [None] * len(entries))
            for entry, remote_call in zip(entries, asked, strict=True):
                found.append(_read(entry, remote_call, found))
            replies[name] = found
        explanations = tuple(filter(None, map(read_finding, stored.explanations)))
        return Transcript(replies, stored.carried, explanations, stored.trouble, stored.figure, stored.layer)
    except (zlib.error, ValueError, LookupError, TypeError, RecursionError):  # a damaged one is as good as none
        return None


def _pack(reply: Reply) -> _Entry:
    return _Entry(reply.raw, reply.printed, reply.stopped and (type(reply.stopped).__name__, str(reply.stopped)))


def _read(entry: _Entry, asked: RemoteCall | None, before: Sequence[Reply]) -> Reply:
    if entry.stopped:
        kind, message = entry.stopped
        return Reply(stopped=KINDS[kind](message), printed=entry.printed)
    tensors: list[Tensor] = []
    if asked:
        encode(asked.fill_in(list_values(before)), tensors)
    return replace(check(entry.raw, json.loads(entry.raw[0])["token"], tensors), printed=entry.printed)
