"""The parts of an experiment: asking the student's function, comparing its answers, and saying what they show.

It knows nothing of any problem: those are in the files beside it, one for each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import article, is_float
from cs336_kit.engine.failure import with_type

MOST_CALLS = 400  # of one examination: a student waits for it

T = TypeVar("T")


class NoAnswerError(Exception):
    """A call raised, or returned something that is not a tensor of the right shape; `__cause__` is what it raised."""


@dataclass(frozen=True)
class Finding:
    """One fact about the student's function.

    Args:
        id: its name, "scale", before which `about` puts the problem's, "attention-scale"; each kind of mistake that
            can be told apart has its own.
        measured: what was measured and what it should be, in numbers of this student's function.
        means: what that says about the code, or "" where the numbers say it.
        question: what a tutor would ask next.
        touches: whether what was found can make a test on this case fail.
        error: what the student's function raised, where that is what was found.
        section: where docs/assignment.md explains it, "3 Attention", or docs/bonus.md, "B1 ..."; `about` says so.
        program: the right program with this mistake in it, called as the tests call the student's, where there is one.
        memory: whether a test of memory, which has no cases, can fail by it.
    """

    id: str
    measured: str
    means: str
    question: str
    touches: Callable[[Case], bool] = lambda case: True
    error: BaseException | None = None
    section: str = ""
    program: Callable[..., Any] | None = None
    memory: bool = False


Finds = Finding | None
Examination = Callable[..., list[Finding]]


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Compute with one thread: threads that wait for each other cost more than they bring, in calls this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def about(problem: str, section: str) -> Callable[[Examination], Examination]:
    """Complete the findings of an examination, except those that another one has completed.

    Args:
        problem: the first word of their ids.
        section: where the handout explains what they are about.
    """

    def complete(examination: Examination) -> Examination:
        @wraps(examination)
        def completed(*arguments: Any) -> list[Finding]:
            with use_one_thread():
                found = examination(*arguments)
            return [f if f.section else replace(f, id=f"{problem}-{f.id}", section=section) for f in found]

        return completed

    return complete


class Ask:
    """The student's function. Every call gets tensors of its own, and random numbers that `seed` alone decides.

    Args:
        function: is called with positional arguments.
        names: what its arguments are called, in their order.
    """

    def __init__(self, function: Callable[..., Any], *names: str) -> None:
        self.function = function
        self.names = names
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
        leaves = [x.requires_grad_() for x in given if is_float(x)]
        return self._call(given), leaves

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


def by_name(run: Callable[..., Any], *names: str) -> Ask:
    """Ask `run` with keywords, as the tests call it; `names` are those of the arguments, in their order."""
    return Ask(lambda *arguments: run(**dict(zip(names, arguments, strict=False))), *names)


def examine(student: T, experiments: Iterable[Callable[[T], Finding | list[Finding] | None]]) -> list[Finding]:
    """List what the experiments find out about `student`, in their order.

    One whose calls get no answer finds nothing, and neither does one that needs what an earlier one did not find out.
    """
    findings = []
    for experiment in experiments:
        try:
            found = experiment(student) or []
        except NoAnswerError:
            continue
        findings += found if isinstance(found, list) else [found]
    return findings


def require(met: object) -> None:
    """Go on with an experiment only where what it takes for granted holds.

    Raises:
        NoAnswerError: it does not.
    """
    if not met:
        raise NoAnswerError("an experiment takes for granted what does not hold")


def random(seed: int, *shape: int) -> Tensor:
    """The same normally distributed numbers each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def span(x: Tensor) -> str:
    """The numbers of `x` in words: "0.31 … 1.74", or one of them where all are the same."""
    low, high = f"{float(x.min()):.4g}", f"{float(x.max()):.4g}"
    return low if low == high else f"{low} … {high}"


def number(x: float | Tensor) -> str:
    """Four digits, and no -0."""
    return "0" if abs(float(x)) < 1e-7 else f"{float(x):.4g}".replace("nan", "NaN")


def numbers(row: Tensor | Sequence[float]) -> str:
    """A row of numbers: (0.5403, 0.8415)."""
    values = row.tolist() if isinstance(row, Tensor) else row
    return "(" + ", ".join(map(number, values)) + ")"


def _copies(arguments: Iterable[Any]) -> list[Any]:
    return [x.clone() if isinstance(x, Tensor) else x for x in arguments]
