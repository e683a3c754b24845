"""The promises of every function, whatever it computes: its calls get an answer, and the answer keeps the contract.

A problem gives one usual call and variations of it, each of which changes one thing. What one thing breaks the call is
then known, whatever line it breaks in. The rest are the dtype of the input, gradients, and inputs left as they were.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name, is_float, listed
from cs336_kit.engine.failure import StudentRaised, with_type
from cs336_kit.examination.experiment import Ask, Finding, Finds, NoAnswerError, examine, near, random

WHAT_COMES_BACK = "What does your function return, and what does the handout say that it returns?"
NOT_BROADCAST = r"IndexError: The shape of the mask .* does not match the shape of the indexed tensor"
# What to ask about an error, whatever call raises it.
ASKED_OF = (
    (
        r"(ValueError|AssertionError)(?!.*(unpack|broadcast|not in (list|tuple)))",
        "Is this a check of your own? Does the handout demand it of this call?",
    ),
    (
        r"RuntimeError: view size is not compatible",
        "How does a transposed tensor lie in memory, and what does view need that reshape does not?",
    ),
    (
        NOT_BROADCAST,
        "Which shape has the mask here, and which shape what it indexes? Which operations broadcast a mask?",
    ),
)
# What to ask about another one when no call works.
QUESTIONS = (
    (r"(Syntax|Indentation|Tab)Error", ""),
    (r"(ModuleNotFound|Import)Error", "Which file or package should define that name, and how is it spelt there?"),
    (r".*state_dict", "What are your module's parameters called, and what does your adapter call them?"),
    (r".*returned None", WHAT_COMES_BACK),
    (r"TypeError.*argument", "Which arguments does the `def` name, and which does the call pass?"),
    (r".*(shape|size|dimension|axis|axes)", "Which line raises, and which shapes meet there?"),
    ("", "Which line raises, and what does it take for granted?"),
)
LONGEST_MESSAGE = 160
MOST_NAMED = 2  # of the calls that break in one place
STEP = 1e-2  # of the difference quotients: in float32 its square and the rounding are both about 1e-4
SLOPE = 2e-2  # a gradient is wrong when it is further from the difference quotient than this, relative to the largest
BY_HAND = "You wrote the backward pass yourself: which derivative does it compute, and of what?"
ROUNDING = 1e-5  # of such a quotient, relative to the answer: float32's, divided by the step
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Call(Protocol):
    """The arguments of a call and the shape of its answer; a problem's own is a dataclass of sizes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # `replace` takes it for a dataclass

    @property
    def arguments(self) -> tuple[Any, ...]: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the answer should have."""
        ...


C = TypeVar("C", bound=Call)


@dataclass(frozen=True)
class Variation:
    """A call that differs from the usual one in one thing.

    Args:
        id: its name in findings, "without-mask".
        words: the same in a sentence, "without a mask".
        sizes: those of the call that it changes, by name.
        question: what a tutor asks when it breaks.
        touches: whether a test on this case makes such a call.
    """

    id: str
    words: str
    sizes: Mapping[str, Any]
    question: str
    touches: Callable[[Case], bool] = lambda case: True

    def failure(self, ask: Ask, usual: Call) -> NoAnswerError | None:
        return _failure(ask, replace(usual, **self.sizes))


def in_other_dtypes(question: str) -> Iterator[Variation]:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        name = dtype_name(dtype)
        yield Variation(name, f"in {name}", {"dtype": dtype}, question, has_dtype(dtype))


def has_dtype(*dtypes: torch.dtype) -> Callable[[Case], bool]:
    return lambda case: case.dtype in dtypes


@dataclass
class Calls(Generic[C]):
    """The outcome of the calls.

    Args:
        usual: a call that works: the usual one, or the first variation that does; the usual one where nothing works.
        works: whether anything does.
        findings: what does not work.
        failed: by the ids of the variations that do not, how they fail.
        broken: for the id of a finding, the calls that it is about.
    """

    usual: C
    works: bool
    findings: list[Finding]
    failed: dict[str, NoAnswerError] = field(default_factory=dict)
    broken: dict[str, list[C]] = field(default_factory=dict)

    def count_same_words(self, other: "Calls[Any]") -> int | None:
        """Count the calls that fail with the same words; None if not the same calls fail, each in the same way."""
        if self.failed.keys() != other.failed.keys():
            return None
        pairs = [(error, other.failed[id]) for id, error in self.failed.items()]
        return sum(_text(x) == _text(y) for x, y in pairs) if all(_fails_like(x, y) for x, y in pairs) else None


def try_calls(ask: Ask, usual: C, words: str, variations: Sequence[Variation]) -> Calls[C]:
    """Make the usual call, which is called `words` in a sentence, and its variations.

    Code that is not written yet is not a finding.
    """
    error = _failure(ask, usual)
    if error and isinstance(error.__cause__, NotImplementedError):
        return Calls(usual, False, [])
    findings = []
    failed = _failures(ask, usual, variations)
    if error:
        broken = {each.id for each, _ in failed}
        working = next((each for each in variations if each.id not in broken), None)
        if working is None:
            measured = f"Your function fails {words}, and in every other call that was tried: {quoted(error)}."
            if other := next(((each, e) for each, e in failed if _text(e) != _text(error)), None):
                measured = (
                    f"Your function fails {words}: {quoted(error)}. Every other call that was tried fails, too, but "
                    f"differently {other[0].words}: {quoted(other[1])}."
                )
            all_failed = {each.id: e for each, e in failed}
            return Calls(usual, False, [_crash("fails", measured, error, _question(error))], all_failed)
        measured = f"Your function fails {words}: {quoted(error)}. The same call {working.words} works."
        question = "Which line raises, and what in it is different in these two calls?"
        findings.append(_crash(f"fails-unless-{working.id}", measured, error, question))
        usual, words = replace(usual, **working.sizes), working.words
        failed = _failures(ask, usual, variations)
    calls = Calls(usual, True, findings, {each.id: e for each, e in failed})
    same_place: dict[object, list[tuple[Variation, NoAnswerError]]] = {}
    for each, e in failed:
        if error and _place(e) == _place(error):
            continue  # the same once more
        same_place.setdefault(_place(e), []).append((each, e))
    for group in same_place.values():
        first, e = group[0]
        if e.__cause__:
            measured = f"Your function works {words} and fails {_named(group)}."
        else:
            measured = f"Your answer has the right shape {words}; {first.words} {e}."
        id = f"{'fails' if e.__cause__ else 'shape'}-{first.id}"
        touches = partial(_any_touches, [each for each, _ in group])
        findings.append(_crash(id, measured, e, first.question, touches))
        calls.broken[id] = [replace(usual, **each.sizes) for each, _ in group]
    return calls


def _failures(ask: Ask, usual: Call, variations: Sequence[Variation]) -> list[tuple[Variation, NoAnswerError]]:
    return [(each, error) for each in variations if (error := each.failure(ask, usual))]


def _crash(
    id: str, measured: str, error: NoAnswerError, question: str, touches: Callable[[Case], bool] = lambda case: True
) -> Finding:
    means = "`x[mask]` does not broadcast the mask: it must have the shape of x, or of its first axes."
    question = next((asks for pattern, asks in ASKED_OF if re.match(pattern, str(error), re.DOTALL)), question)
    return Finding(id, measured, means * bool(re.match(NOT_BROADCAST, str(error))), question, touches, error.__cause__)


def _question(error: NoAnswerError) -> str:
    """A question that fits the error, or asks what comes back where nothing was raised."""
    if error.__cause__ is None:
        return WHAT_COMES_BACK
    return next(question for pattern, question in QUESTIONS if re.match(pattern, str(error), re.DOTALL))


def _named(group: Sequence[tuple[Variation, NoAnswerError]]) -> str:
    """The first calls of a group, each with its own error, unless they have the same."""
    calls: dict[str, list[tuple[Variation, NoAnswerError]]] = {}
    for each, error in group[:MOST_NAMED]:
        calls.setdefault(_text(error), []).append((each, error))
    return ", and ".join(
        f"{' and '.join(each.words for each, _ in same)}: {quoted(same[0][1])}" for same in calls.values()
    )


def _fails_like(one: NoAnswerError, other: NoAnswerError) -> bool:
    """Tell whether two calls fail in the same way: by an answer of the same shape, or an error of the same type.

    Where both errors are about sizes that do not fit each other, these are the same, too.
    """
    if not (one.__cause__ and other.__cause__):
        return str(one) == str(other)
    (type, *sizes), (other_type, *other_sizes) = (
        (str(error).partition(":")[0], *sorted(re.findall(r"tensor [ab] \((\d+)\)", str(error))))
        for error in (one, other)
    )
    return type == other_type and (sizes == other_sizes or not (sizes and other_sizes))


def _text(error: NoAnswerError) -> str:
    """Its words alone: sizes may differ."""
    return re.sub(r"[^A-Za-z]+", " ", str(error))


def _failure(ask: Ask, call: Call) -> NoAnswerError | None:
    try:
        ask.tensor(call.shape, *call.arguments)
    except NoAnswerError as error:
        return error
    return None


def _any_touches(variations: Sequence[Variation], case: Case) -> bool:
    return any(each.touches(case) for each in variations)


def _place(error: NoAnswerError) -> object:
    """The line that raised: variations that break in the same one have the same cause."""
    if isinstance(error.__cause__, StudentRaised):
        frames = error.__cause__.frames
        return (frames[-1].filename, frames[-1].lineno) if frames else _text(error)
    trace = error.__cause__ and error.__cause__.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace and (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


class _Unwritten(TorchDispatchMode):
    """Have torch fill memory that nothing was written to: floating-point numbers with a value, others with zeros."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.name().startswith(("aten::empty", "aten::new_empty")):
            made.fill_(self.value if made.is_floating_point() or made.is_complex() else 0)
        return made


def quoted(error: NoAnswerError) -> str:
    return f"`{_brief(str(error))}`" if error.__cause__ else _brief(str(error))


def _brief(message: str) -> str:
    """The first line, without what torch advises; shorter, if it is long."""
    line = message.partition("\n")[0].partition(" Hint: ")[0].removesuffix(".")
    return f"{line[:LONGEST_MESSAGE]}…" if len(line) > LONGEST_MESSAGE else line


def _is_by_hand(node: Any) -> bool:
    """Say whether some part of a graph has a backward pass that the student wrote."""
    seen, left = set(), [node]
    while left:
        if (node := left.pop()) and node not in seen:
            seen.add(node)
            left += [each for each, _ in node.next_functions]
    return any(isinstance(each, torch.autograd.function.BackwardCFunction) for each in seen)


def _or_zero(slope: Tensor | None) -> Tensor:
    return torch.zeros(()) if slope is None else slope


class Contract:
    """The experiments on one call, with float32 tensors.

    Args:
        ask: the student's function.
        call: to make.
        without: the names of arguments that need no gradient.
        in_place: whether the function is known to write into its arguments.
    """

    def __init__(self, ask: Ask, call: Call, without: Collection[str] = (), in_place: bool = False) -> None:
        self.ask, self.arguments, self.shape, self.without = ask, call.arguments, call.shape, without
        self.in_place = in_place
        self.slopes: dict[str, Tensor | None] = {}  # those that autograd gives, by the argument's name

    def inputs_left_alone(self) -> Finds:
        changed = [self.ask.names[i] for i in self.ask.changed(*self.arguments)]
        if not changed:
            return None
        measured = (
            f"After the call {' and '.join(changed)} {'are' if len(changed) > 1 else 'is'} no longer what was passed."
        )
        question = "Which operation works in place: `x -= y`, a method that ends in `_`, or an assignment to `x[...]`?"
        return Finding("in-place", measured, "Your code writes into the tensor that the caller still holds.", question)

    def repeatable(self) -> Finds:
        """Check that the same call gives the same answer."""
        with _Unwritten(0.0):  # memory that was freed may hold NaN
            first = self.ask.tensor(self.shape, *self.arguments)
        with _Unwritten(math.nan):
            again = self.ask.tensor(self.shape, *self.arguments)
        unwritten = again.isnan() & ~first.isnan()
        if unwritten.any():
            measured = f"{int(unwritten.sum())} of the {unwritten.numel()} numbers of your answer depend on memory that"
            question = "Is there a torch.empty of which not every element is set?"
            return Finding("unwritten", f"{measured} was never written.", "", question)
        self.ask.seed += 1
        with _Unwritten(0.0):
            other = self.ask.tensor(self.shape, *self.arguments)
        if near(other, first) and near(again, first):
            return None
        if near(again, first):
            zeros = float((other == 0).double().mean())
            measured = f"Two calls on the same input differ by up to {float((other - first).abs().max()):.3g}"
            if zeros:
                measured += f", and {zeros:.0%} of the numbers are 0"
            means = "Something in your function is random."
            question = "Is dropout on where nothing is being trained? Is there a parameter that keeps its random value?"
            return Finding("random", measured + ".", means, question)
        measured = f"The second call on the same input differs by up to {float((again - first).abs().max()):.3g}."
        means = "Your function remembers something from call to call."
        question = "What survives the call: a cache, a buffer, an attribute?"
        return Finding("remembers", measured, means, question)

    def gradients(self) -> Finds:
        """Check that there are gradients, and that they agree with difference quotients of the student's function."""
        try:
            answer, leaves = self.ask.with_graph(*self.arguments)
        except NoAnswerError as error:
            if self.in_place:  # which is what autograd refuses
                return None
            self.ask(*self.arguments)  # works, or there is nothing to find here
            measured = f"Your function works, but fails when its inputs require gradients: {quoted(error)}."
            return self._gradient("fails", measured, "Which operation can autograd not follow?", error.__cause__)
        if not isinstance(answer, Tensor) or answer.shape != self.shape:
            return None
        if not answer.requires_grad:
            measured = "The inputs require gradients, but your answer can pass none back: its requires_grad is False."
            return self._gradient("detached", measured, "Which of your operations cuts the graph: .detach(), .data, …?")
        direction = random(0, *self.shape)
        try:
            loss = (answer * direction.to(answer.dtype)).sum().real  # given a cotangent, autograd imports sympy: 1.5 s
            slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
        except Exception as error:
            measured = f"The call works, and backward() fails: `{_brief(with_type(error))}`."
            return self._gradient("backward-fails", measured, "Which tensor did you change after it was used?", error)
        names = [name for name, x in zip(self.ask.names, self.arguments, strict=False) if is_float(x)]
        self.slopes = {name: slope for name, slope in zip(names, slopes, strict=True) if name not in self.without}
        if cut := [name for name, slope in self.slopes.items() if slope is None]:
            measured = f"{listed(cut)} {'get' if len(cut) > 1 else 'gets'} no gradient."
            question = "Which operation between there and the answer cuts the graph?"
            if cut == [name for name in names if name.endswith("_weight")]:
                question = (
                    "Does your adapter copy the weights, as .data and load_state_dict do? functional_call does not."
                )
            return self._gradient("cut", measured, question, of=cut)
        noise = ROUNDING * float((answer.detach() * direction).abs().sum())
        question = (
            BY_HAND if _is_by_hand(answer.grad_fn) else "Which part of your formula does autograd treat as constant?"
        )
        return self._compared(direction.double(), noise, question)

    def _compared(self, direction: Tensor, noise: float, question: str) -> Finds:
        for name, slope in self.slopes.items():
            assert slope is not None
            i = self.ask.names.index(name)
            step = random(1, *self.arguments[i].shape)
            predicted = float((slope.double() * step.double()).sum())
            quotient = self._quotient(i, step, direction, STEP)
            allowed = max(SLOPE * max(abs(quotient), abs(predicted), float(slope.double().norm())), noise)
            differs = abs(quotient - predicted) > allowed  # not if it is NaN, which has an experiment of its own
            if differs and abs(self._quotient(i, step, direction, 2 * STEP) - quotient) < allowed:
                measured = (
                    f"When {name} moves in one direction, a weighted sum of your answer changes at a rate of "
                    f"{quotient:.4g}; autograd says {predicted:.4g}."
                )
                return self._gradient("wrong", measured, question, of=[name])
        return None

    def _quotient(self, i: int, step: Tensor, direction: Tensor, size: float) -> float:
        """Divide the answer's change in a direction, when an argument takes steps forward and back, by their size."""
        ends = []
        for sign in (1, -1):
            moved = [*self.arguments]
            moved[i] = moved[i] + sign * size * step
            ends.append(self.ask.tensor(self.shape, *moved))
        return float(((ends[0] - ends[1]) * direction).sum()) / (2 * size)

    def has_slopes_of(self, program: Callable[..., Any], call: Call) -> bool:
        """Tell whether autograd gives for a program what it gave for the student's function."""
        model = Contract(Ask(program, *self.ask.names), call, self.without)
        examine(model, (Contract.gradients,))
        return model.slopes.keys() == self.slopes.keys() and all(
            near(_or_zero(x), _or_zero(y), SLOPE)
            for x, y in zip(model.slopes.values(), self.slopes.values(), strict=True)
        )

    def _gradient(
        self, id: str, measured: str, question: str, error: BaseException | None = None, of: Collection[str] = ()
    ) -> Finding:
        """A finding on the gradients of these arguments, or of all."""

        def touches(case: Case) -> bool:
            named = case.inputs.keys() & of  # an examination may have names of its own
            return bool(named.intersection(case.gradients) if named else case.gradients)

        return Finding(f"gradient-{id}", measured, "", question, touches, error)
