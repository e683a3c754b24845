"""Compare an output with the expected one, and say what is wrong with it."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import Tensor

from whichline.engine.result import Check

THREE_DIGITS = 1e-3
NOTHING = 1e-200  # replaces a tolerance of 0, so that a wrong number there counts as the worst error


class WrongAnswer(AssertionError):
    """An output is not the expected one; from its second line on, the message has numbers of the test case.

    `check` is the part that was checked, `answer` the output if it is a tensor, and `what` its name in the test case's
    `expected`; `kind` is the first line of the message without anything that depends on the output.
    """

    def __init__(
        self, text: str, check: Check = Check.ANSWER, answer: Tensor | None = None, what: str = "answer", kind: str = ""
    ) -> None:
        super().__init__(text)
        self.check, self.answer, self.what, self.kind = check, answer, what, kind


@contextmanager
def in_float64() -> Iterator[None]:
    """Make float64 torch's default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def same(
    x: Tensor | float, right: Tensor | float, within: float | Tensor = THREE_DIGITS, of: float | Tensor | None = None
) -> Tensor:
    """Tell for each number whether it is right; NaN equals NaN, and infinity equals infinity.

    The tolerance is `within`, as a share of `of`, which is by default the largest finite number in `right`.
    """
    x, right = (torch.as_tensor(each, dtype=torch.float64).detach() for each in (x, right))
    if of is None:
        of = find_scale(right.nan_to_num(0.0, 0.0, 0.0))
    return ((x - right).abs() <= within * of) | (x == right) | (x.isnan() & right.isnan())


def find_scale(x: Tensor) -> float:
    """The largest absolute value; 0 if there are no numbers."""
    return float(x.abs().max()) if x.numel() else 0.0


def near(x: Tensor | float, to: Tensor | float) -> bool:
    """Tell whether all numbers of `x` equal those of `to` to three digits."""
    return bool(same(x, to).all())


def compare(answer: Any, expected: Tensor, dtype: torch.dtype, tolerance: Tensor, what: str, check: Check) -> None:
    """Check that `answer` has the shape of `expected`, the dtype `dtype` and nowhere an error above `tolerance`.

    WrongAnswer for the first of these that applies: no tensor, wrong shape, wrong dtype, NaN or infinity, wrong numbers
    (with the error that is the largest multiple of its tolerance, and its position).
    """
    compare_form(answer, expected, dtype, what, check)
    wide = answer.detach().double()
    wrong = ~same(wide, expected, tolerance, of=1.0)
    if not wrong.any():
        return
    bad = ~wide.isfinite()
    if bad.any():
        where = f"{int(bad.sum())} of {bad.numel()} places, first at {find_largest(bad.byte())}"
        said = f"the {what} is NaN or infinite"
        raise WrongAnswer("\n".join((f"{said} in {where}", *_describe_places(bad))), check, answer, what, said)
    error = (wide - expected).abs()
    times = error / tolerance.clamp_min(NOTHING) * wrong
    where = find_largest(times)
    place = tuple(where)
    factor = f"{times[place]:,.0f}" if times[place] >= 10 else f"{times[place]:.1f}"
    digits = 6 if error[place] > 1e-5 * expected[place].abs() else 16  # as many as show the difference
    lines = (
        f"the {what} is wrong in {int(wrong.sum())} of {wrong.numel()} places",
        f"furthest off at {where}: got {wide[place]:.{digits}g}, expected {expected[place]:.{digits}g}",
        f"that is {factor} times the error that is allowed, {tolerance[place]:.0e}"
        if tolerance[place]
        else f"no error is allowed there: it should be exactly {expected[place]:.{digits}g}",
        *_describe_places(wrong),
    )
    raise WrongAnswer("\n".join(lines), check, answer, what, f"the {what} is wrong")


def compare_form(answer: Any, expected: Tensor, dtype: torch.dtype, what: str, check: Check = Check.ANSWER) -> None:
    """Raise WrongAnswer unless `answer` is a tensor with the shape of `expected` and the dtype `dtype`."""
    check_shape(answer, expected.shape, what, check)
    if answer.dtype != dtype:
        said = f"the {what} has dtype {name_dtype(answer.dtype)}, expected {name_dtype(dtype)}"
        if not expected.is_floating_point():
            raise WrongAnswer(said, check, answer, what)
        kind = f"the {what} does not have the dtype of the inputs"
        raise WrongAnswer(f"{said}, that of the inputs", check, answer, what, kind)


def check_shape(answer: Any, shape: Sequence[int], what: str = "answer", check: Check = Check.ANSWER) -> None:
    """Raise WrongAnswer unless `answer` is a tensor of this shape."""
    if not isinstance(answer, Tensor):
        hint = ": is a `return` missing?" if answer is None else ""
        came, kind = add_article(type(answer).__name__), f"the {what} is not a tensor: is a `return` missing?"
        raise WrongAnswer(f"the {what} is {came}, expected a tensor{hint}", check, kind=kind)
    if answer.shape != tuple(shape):
        said, kind = f"has shape {tuple(answer.shape)}, expected {tuple(shape)}", "does not have the expected shape"
        raise WrongAnswer(f"the {what} {said}", check, answer, what, f"the {what} {kind}")


def add_article(name: str) -> str:
    """A type's name with its article: a list, an ndarray, None."""
    return "None" if name == "NoneType" else f"{'an' if name[0] in 'aeioAEIO' or name == 'ndarray' else 'a'} {name}"


def listed(things: Iterable[Any]) -> str:
    """Join things for a sentence: 0, 1 and 2."""
    *others, last = map(str, things)
    return f"{', '.join(others)} and {last}" if others else last


def _describe_places(wrong: Tensor) -> Iterator[str]:
    """For each axis with an index at which everything is right, say which other indices have wrong numbers."""
    for axis, size in enumerate(wrong.shape):
        others = [other for other in range(wrong.ndim) if other != axis]
        indices = (wrong.any(others) if others else wrong).nonzero().flatten().tolist()
        if len(indices) < size:
            shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
            yield f"wrong only at {'index' if len(indices) == 1 else 'indices'} {shown} of axis {axis} (size {size})"


def find_largest(x: Tensor) -> list[int]:
    """Find where `x` is largest, or NaN; the first place among equals."""
    return find_index(int(x.argmax()), x.shape)


def find_index(position: int, shape: Sequence[int]) -> list[int]:
    """Find the element that has this position in row-major order.

    `torch.unravel_index` would import sympy, which takes half a second.
    """
    index = []
    for size in reversed(shape):
        position, i = divmod(position, size)
        index.insert(0, i)
    return index


def is_float(x: object) -> TypeGuard[Tensor]:
    """Tell whether this is a tensor of floating-point numbers."""
    return isinstance(x, Tensor) and x.is_floating_point()


def in_dtype(x: Any, dtype: torch.dtype) -> Any:
    """Convert a tensor of floating-point numbers, or all in a dictionary, to a dtype; anything else stays as it is."""
    return change_tensors(x, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def change_tensors(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change a tensor, or each tensor in a copy of a dictionary; anything else stays as it is."""
    if isinstance(x, dict):
        new = copy.copy(x)
        new.update({key: change_tensors(each, change) for key, each in x.items()})
        return new
    return change(x) if isinstance(x, Tensor) else x


def name_dtype(dtype: torch.dtype) -> str:
    """float32, without the module."""
    return str(dtype).removeprefix("torch.")
