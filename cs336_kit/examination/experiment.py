"""The parts of an experiment: asking the student's function, and saying what its answers show.

It knows nothing of any problem: those are in the files beside it, one for each.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import article
from cs336_kit.engine.failure import with_type

NAN = 1e300  # stands for it where numbers are compared
MOST_CALLS = 400  # of one examination: a student waits for it


class NoAnswerError(Exception):
    """A call raised, or returned something that is not a tensor of the right shape; `__cause__` is what it raised."""


@dataclass(frozen=True)
class Finding:
    """One fact about the student's function.

    Args:
        id: its name, "attention-scale"; each kind of mistake that can be told apart has its own.
        measured: what was measured and what it should be, in numbers of this student's function.
        means: what that says about the code, or "" where the numbers say it.
        question: what a tutor would ask next.
        section: where docs/assignment.md explains it, "3 Attention".
        touches: whether what was found can make a test on this case fail.
        error: what the student's function raised, where that is what was found.
    """

    id: str
    measured: str
    means: str
    question: str
    section: str
    touches: Callable[[Case], bool] = lambda case: True
    error: BaseException | None = None


class Ask:
    """The student's function. Every call gets tensors of its own, and random numbers that `seed` alone decides."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0
        self.seed = 0

    def __call__(self, *arguments: Any) -> Any:
        """Call the function and return its answer, without its graph.

        Raises:
            NoAnswerError: it raised.
        """
        answer = self._call(_copies(arguments))
        return answer.detach() if isinstance(answer, Tensor) else answer

    def tensor(self, shape: Iterable[int], *arguments: Any) -> Tensor:
        """The answer in float64.

        Raises:
            NoAnswerError: the function raised, or its answer is not a tensor of this shape.
        """
        answer = self(*arguments)
        if not isinstance(answer, Tensor):
            raise NoAnswerError(f"the answer is {article(type(answer).__name__)}, expected a tensor")
        if answer.shape != torch.Size(shape):
            raise NoAnswerError(f"the answer has shape {tuple(answer.shape)}, expected {tuple(shape)}")
        return answer.double()

    def changed(self, *arguments: Any) -> list[int]:
        """The places of the arguments that the function changes.

        Raises:
            NoAnswerError: it raised.
        """
        given = _copies(arguments)
        self._call(given)
        pairs = zip(arguments, given, strict=True)
        return [i for i, (x, y) in enumerate(pairs) if isinstance(x, Tensor) and not torch.equal(x, y)]

    def with_graph(self, *arguments: Any) -> tuple[Any, list[Tensor]]:
        """The answer with its graph, and the leaves of that: copies of the arguments that are floating-point tensors.

        Raises:
            NoAnswerError: the function raised.
        """
        given = _copies(arguments)
        leaves = [x.requires_grad_() for x in given if isinstance(x, Tensor) and x.is_floating_point()]
        return self._call(given), leaves

    def slopes(self, *arguments: Any) -> tuple[Tensor, list[Tensor | None]]:
        """The answer, and the gradients of its sum by the floating-point tensors among the arguments.

        Raises:
            NoAnswerError: the function or backward raised, or there is no tensor.
        """
        answer, leaves = self.with_graph(*arguments)
        if not isinstance(answer, Tensor):
            raise NoAnswerError("the answer is not a tensor")
        if not answer.requires_grad:
            return answer, [None] * len(leaves)
        try:
            return answer.detach(), list(torch.autograd.grad(answer.sum(), leaves, allow_unused=True))
        except Exception as error:
            raise NoAnswerError(with_type(error)) from error

    def _call(self, arguments: list[Any]) -> Any:
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise NoAnswerError("the examination has made all its calls")
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(self.seed)  # torch.manual_seed also looks for other devices: slow
                return self.function(*arguments)
        except Exception as error:
            raise NoAnswerError(with_type(error)) from error


def by_name(run: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """Give `run`, called with keywords as the tests call it; `names` are those of the arguments, in their order."""
    keywords = tuple(names)
    return lambda *arguments: run(**dict(zip(keywords, arguments, strict=False)))


def examine(experiments: Iterable[Callable[[], Finding | list[Finding] | None]]) -> list[Finding]:
    """List what the experiments find, in their order; one whose calls get no answer finds nothing."""
    findings = []
    for experiment in experiments:
        try:
            found = experiment() or []
        except NoAnswerError:
            continue
        findings += found if isinstance(found, list) else [found]
    return findings


def span(x: Tensor) -> str:
    """The numbers of `x` in words: "0.31 … 1.74", or one of them where all are the same."""
    low, high = f"{float(x.min()):.4g}", f"{float(x.max()):.4g}"
    return low if low == high else f"{low} … {high}"


def number(x: float) -> str:
    """Three digits of `x`, or two of a large one: "0.378", "-10,000", "-1e9"."""
    if abs(x) < 1e3:
        return f"{x:.3g}"
    return f"{float(f'{x:.2g}'):,.0f}" if abs(x) < 1e6 else f"{x:.2g}".replace("e+0", "e").replace("e+", "e")


def near(x: Tensor | float, to: Tensor | float, within: float = 1e-3) -> bool:
    """Compare all of `x` with `to`: no further away than `within` times the largest of both. NaN equals NaN."""
    x, to = torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(to, dtype=torch.float64)
    x, to = x.nan_to_num(NAN), to.nan_to_num(NAN)
    size = max(float(x.abs().max()), float(to.abs().max()))
    return bool(((x - to).abs() <= within * size).all())


def _copies(arguments: Iterable[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, Tensor) else x for x in arguments]
