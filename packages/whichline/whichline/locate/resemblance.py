"""Describing a wrong value by the right one: along another axis, in another order, of other rows, with fewer digits.

A value that is none of these is described by its operands.
"""

import ast
import itertools
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from whichline.engine.compare import listed, name_dtype
from whichline.locate.probe import Expression
from whichline.locate.trace import Trace
from whichline.locate.values import CLOSE, HALF, Value, is_mask, is_near

SHOWN = 4  # indices of a list that are written out
MOST = 4_000_000  # numbers, in a comparison of each slice with each
LARGE = 1e6  # stands for infinity
WIDTH = 48  # of an expression in a sentence
SUMS = "numbers that sum to 1 along axis"
OF_HALF = 16  # eps of half precision: how far rounding may move a value
OPERATIONS = {ast.Add: "plus", ast.Sub: "minus", ast.Mult: "times", ast.Div: "divided by", ast.MatMult: "@"}


def describe_axes(shape: tuple[int, ...], right: tuple[int, ...]) -> str:
    """Say along which axis a value was reduced, and along which it should be; "" if that is not the difference."""
    if not shape:
        return "one number for the whole tensor"
    pairs = [(axis, here, there) for axis, (here, there) in enumerate(zip(shape, right, strict=False)) if here != there]
    here, there = [axis for axis, x, _ in pairs if x == 1], [axis for axis, _, x in pairs if x == 1]
    if len(shape) != len(right) or len(here) != 1 or len(there) != 1 or len(pairs) != 2:
        return ""
    return f"shape {shape}: reduced along axis {here[0]} in place of axis {there[0]}"


def describe_order(x: Tensor, right: Tensor, known: Mapping[str, Value]) -> str:
    """Say in which order a value has the right numbers; "" if in none that has a name."""
    for axis in range(right.ndim):
        order = _find_slices(x, right, axis)
        if order and sorted(order) == list(range(len(order))):
            here, there, moved = _list(order), _list(range(len(order))), _signed(axis - right.ndim)
            where = f": {here} in place of {there}" if here != there else ""
            return f"the same numbers in another order along axis {moved}{where}"
    for one, other in itertools.combinations(range(-right.ndim, 0), 2):
        if right.shape[one] == right.shape[other] and is_near(x, right.transpose(one, other)):
            return f"the same numbers with axes {_signed(one)} and {_signed(other)} exchanged"
    for name, value in known.items():
        tensor = value.tensor
        is_alike = tensor.numel() == x.numel() and tensor.dtype == x.dtype and tensor.shape != x.shape
        if is_alike and tensor.ndim > 1 and is_near(x.flatten(), tensor.flatten()):
            return f"the numbers of {name} in their order, in another shape: no axis was moved"
    return ""


def describe_mask(x: Tensor, right: Tensor) -> str:
    """Say how a mask differs, if that is one thing: two axes that are exchanged, or one diagonal."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or not (is_mask(x) and is_mask(right)):
        return ""
    if torch.equal(x, right.mT):
        return "it with its last two axes exchanged"
    *_, rows, columns = (x != right).nonzero(as_tuple=True)
    if len((columns - rows).unique()) != 1:
        return ""
    diagonal, *numbers = int((columns - rows)[0]), x[x != right][0].item(), right[x != right][0].item()
    side = "above" if diagonal > 0 else "below"
    ordinal = {1: "", 2: "second ", 3: "third "}.get(abs(diagonal), f"{abs(diagonal)}th ")
    where = f"the {ordinal}diagonal {side} the main one" if diagonal else "the diagonal"
    wrong, belongs = ((str(each) if isinstance(each, bool) else f"{each:.4g}").replace("-", "−") for each in numbers)
    return f"{wrong} on {where}, where {belongs} belongs"


def describe(
    trace: Trace, place: Expression, time: int, x: Tensor, right: Tensor, known: Mapping[str, Value]
) -> Iterator[str]:
    """Yield descriptions of wrong numbers, the best one first."""
    if are_in_zeros((x - right).abs() > CLOSE * right.abs().max(), right):
        yield "other numbers in the rows that should be 0; the rest is right"
    yield from _describe_sums(x, right, trace)
    yield from _describe_rows(x, right, known)
    yield from _describe_digits(x, right)
    yield from _describe_operands(trace, place, time)


def are_in_zeros(wrong: Tensor, right: Tensor) -> bool:
    """Tell whether all wrong numbers are in rows that should be 0."""
    return bool(wrong.any()) and right.ndim > 1 and not right[wrong.any(-1)].any() and bool(right.any())


def _describe_sums(x: Tensor, right: Tensor, trace: Trace) -> Iterator[str]:
    """Say that the numbers sum to 1, but along another axis."""
    both = [[axis for axis in range(-each.ndim, 0) if _sums_to_one(each, axis)] for each in (x, right)]
    if both[0] and both[1] and not {*both[0]} & {*both[1]}:
        here, there = (_signed(axes[0]) + _describe_size(right.shape[axes[0]], trace) for axes in both)
        yield f"{SUMS} {here}, not along axis {there}"


def _describe_size(size: int, trace: Trace) -> str:
    """Name the argument and axis with a size; "" if there is none."""
    shapes = {name: x.shape for name, x in trace.arguments.items() if isinstance(x, Tensor)}
    found = [f"{name}.shape[{i - len(s)}]" for name, s in shapes.items() for i in range(len(s)) if s[i] == size]
    return f" (`{found[0]}`)" if found else ""


def _sums_to_one(x: Tensor, axis: int) -> bool:
    sums = x.sum(axis)
    seen = sums != 0  # a masked row has none
    return x.shape[axis] > 1 and bool(seen.any()) and is_near(sums[seen], torch.ones_like(sums[seen]))


def _describe_rows(x: Tensor, right: Tensor, known: Mapping[str, Value]) -> Iterator[str]:
    """Say that the rows are other rows of a known value, or the same row everywhere."""
    for axis in range(right.ndim):
        order = _find_slices(x, right, axis)
        if order and len({*order}) == 1:
            yield f"what belongs at index {order[0]} of axis {_signed(axis - right.ndim)} at every index of it"
            return
    for name, value in known.items():
        table = value.tensor
        if table.ndim == x.ndim and table.shape[1:] == x.shape[1:] and table.ndim > 1 and table.dtype == x.dtype:
            here, there = _find_slices(x, table, 0), _find_slices(right, table, 0)
            if here and there:
                yield f"rows {_list(here)} of {name} in place of rows {_list(there)}"
                return


def _find_slices(x: Tensor, right: Tensor, axis: int) -> list[int]:
    """Find, for each slice along an axis, the equal slice of another tensor; [] if one has none."""
    if x.ndim != right.ndim or not x.numel() or not right.numel():
        return []
    here, there = (each.movedim(axis, 0).reshape(each.shape[axis], -1).double() for each in (x, right))
    too_many = here.shape[0] * there.numel() > MOST or there.shape[0] < 2
    if here.shape[1] != there.shape[1] or too_many or here.isnan().any():
        return []
    here, there = here.clamp(-LARGE, LARGE), there.clamp(-LARGE, LARGE)
    finite = there.abs()[there.abs() < LARGE]
    is_same = (here[:, None] - there).abs().amax(-1) <= CLOSE * (finite.amax() if len(finite) else 0)
    return is_same.int().argmax(1).tolist() if bool((is_same.sum(1) == 1).all()) else []


def _describe_digits(x: Tensor, right: Tensor) -> Iterator[str]:
    """Say that the numbers are right, but rounded to half precision, or computed from rounded numbers."""
    for dtype in HALF if right.isfinite().all() else ():
        if bool(((x - right).abs() <= OF_HALF * torch.finfo(dtype).eps * right.abs().max()).all()):
            is_rounded = torch.equal(x.to(dtype).to(x.dtype), x)
            yield f"it rounded to {name_dtype(dtype)}" if is_rounded else "it right to only two or three digits"
            return


def _describe_operands(trace: Trace, place: Expression, time: int) -> Iterator[str]:
    """Describe an expression by its operands, each under the name of its checkpoint."""
    names = {id(each.node): name for each in trace.list_operands(place) if (name := _name(trace, each, time))}
    node = place.node
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS and {id(node.left), id(node.right)} <= names.keys():
        yield f"{names[id(node.left)]} {OPERATIONS[type(node.op)]} {names[id(node.right)]}"
    elif known := [names.get(id(each.node), "") for each in trace.list_operands(place) if not trace.is_number(each)]:
        text = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else str(place)
        text = text if len(text) <= WIDTH else f"{text[: WIDTH - 2]} …"
        yield f"`{text}` of {listed(dict.fromkeys(known))}" if all(known) else ""


def _name(trace: Trace, place: Expression, time: int) -> str:
    match = trace.match(place)
    if not match or trace.is_number(place):
        return str(place) if trace.is_number(place) else ""
    return match.names[min(time, len(match.names) - 1)]


def _list(indices: Iterator[int] | list[int] | range) -> str:
    shown = [str(i) for i in itertools.islice(indices, SHOWN + 1)]
    return ", ".join([*shown[:SHOWN], *["…"] * (len(shown) > SHOWN)])


def _signed(axis: int) -> str:
    return str(axis).replace("-", "−")
