"""What holds for every problem: what is allowed is answered, in the right shape and dtype, and has a gradient."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError
from cs336_kit.examination.words import listed


def by_name(run: Callable[..., Any], names: str) -> Callable[..., Any]:
    """`run`, called with keywords as the tests call it; `names` are those of the arguments, in their order."""
    return lambda *arguments: run(**dict(zip(names.split(), arguments, strict=False)))


@dataclass(frozen=True)
class Call:
    """A call that must be answered.

    Args:
        words: what it is, "a batch of 2 sequences".
        arguments: what the function is called with.
        shape: what the answer should have.
        touches: the cases that are called like this.
    """

    words: str
    arguments: tuple[Any, ...]
    shape: tuple[int, ...]
    touches: Callable[[Case], bool] = lambda case: True


class Calls:
    """The calls of one problem, the simplest first, each of them made once."""

    def __init__(self, ask: Ask, problem: str, section: str, calls: Sequence[Call]) -> None:
        self.ask, self.problem, self.section, self.calls = ask, problem, section, calls

    @cached_property
    def answers(self) -> list[Any]:
        """What came of each call: an answer, or the error."""
        answers = []
        for call in self.calls:
            try:
                answers.append(self.ask(*call.arguments))
            except NoAnswerError as error:
                answers.append(error)
        return answers

    def crash(self) -> Finding | None:
        """The first call that raises."""
        failed = [isinstance(answer, NoAnswerError) for answer in self.answers]
        if not any(failed):
            return None
        first = failed.index(True)
        if isinstance(self.answers[first].__cause__, NotImplementedError):  # not written yet
            return None
        call, error = self.calls[first], str(self.answers[first]).splitlines()[0].rstrip(".")
        works = [other.words for other, fails in zip(self.calls, failed, strict=True) if not fails]
        nearest = works[first - 1] if first else works[0] if works else ""
        contrast = f"It works with {nearest}." if nearest else "So does every other call that was tried."
        return Finding(
            id=f"{self.problem}-crash",
            measured=f"Your function fails with {call.words}: {error}. {contrast}",
            means="",
            question="Which line raises, and which shapes meet there?",
            section=self.section,
            touches=call.touches if works else lambda case: True,
        )

    def shape(self) -> Finding | None:
        """The first call whose answer has another shape, or is not a tensor."""
        for call, answer in zip(self.calls, self.answers, strict=True):
            came = tuple(answer.shape) if isinstance(answer, Tensor) else None
            if came == call.shape or isinstance(answer, NoAnswerError):
                continue
            what = "is not a tensor" if came is None else f"has shape {came}"
            return Finding(
                id=f"{self.problem}-shape",
                measured=f"With {call.words} the answer {what}; its shape should be {call.shape}.",
                means="",
                question="Which line changes the shape, and which axes should it keep?",
                section=self.section,
                touches=call.touches,
            )
        return None


def other_dtype(ask: Ask, problem: str, section: str, arguments: tuple[Any, ...]) -> Finding | None:
    """Whether float32 does not come back as float32."""
    answer = ask(*arguments)
    if not isinstance(answer, Tensor) or answer.dtype == torch.float32:
        return None
    came = dtype_name(answer.dtype)
    return Finding(
        id=f"{problem}-dtype",
        measured=f"Inputs in float32 give an answer in {came}; it should be float32.",
        means="Something that you compute with has a different dtype, and that one wins.",
        question="Which of your tensors is not made in the dtype of the input?",
        section=section,
        touches=lambda case: case.dtype == torch.float32,
    )


def no_gradient(ask: Ask, problem: str, section: str, arguments: tuple[Any, ...], to: dict[int, str]) -> Finding | None:
    """Whether the answer is cut off from any of the arguments at the places in `to`, which have these names."""
    places = [n for n, x in enumerate(arguments) if isinstance(x, Tensor) and x.is_floating_point()]
    _, gradients = ask.slopes(*arguments)
    cut = [to[n] for n, gradient in zip(places, gradients, strict=True) if gradient is None and n in to]
    if not cut:
        return None
    return Finding(
        id=f"{problem}-gradient",
        measured=f"No gradient comes back to {listed(cut)}.",
        means="Something cuts the answer off from autograd: .data, .detach(), .item(), torch.tensor(...) or no_grad().",
        question="Which line makes a new tensor out of the numbers of an old one?",
        section=section,
        touches=lambda case: bool(set(case.gradients) & set(cut)),
    )
