"""The smallest part of a wrong answer that can be checked on paper; never the right answer."""

from collections.abc import Iterator

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import WrongAnswer, index_of
from cs336_kit.engine.result import Check

MOST = 7


def on_paper(case: Case, error: BaseException) -> tuple[str, ...]:
    """A few lines on the first rows of a wrong answer that break a rule of the problem; nothing when none is known."""
    if not isinstance(error, WrongAnswer) or error.check is not Check.ANSWER or error.answer is None:
        return ()
    expected = case.expected["answer"]
    if error.answer.shape != expected.shape or not error.answer.isfinite().all():
        return ()
    got = error.answer.detach().double()
    wrong = (got - expected).abs() > case.tolerance["answer"]
    if not wrong.any():  # the last digits, which no one computes on paper
        return ()
    nothing = max(1e-4, 16 * torch.finfo(case.dtype).eps)  # what rounding may leave of a weight
    if "dim" in case.inputs:
        return tuple(_slice(got.movedim(case.dim, -1), wrong.movedim(case.dim, -1), nothing))
    if "V" in case.inputs:
        return tuple(_query(case, got, wrong, nothing))
    if "token_positions" in case.inputs and "in_query_or_key" in case.inputs:
        return tuple(_pair(case, got, wrong))
    return ()


def _slice(got: Tensor, wrong: Tensor, nothing: float) -> Iterator[str]:
    row = got[tuple(wrong.any(-1).nonzero()[0])]
    yield f"the first wrong slice along `dim`: {_numbers(row)}"
    yield _sum("it sums", row, 1, nothing)


def _query(case: Case, got: Tensor, wrong: Tensor, nothing: float) -> Iterator[str]:
    V, mask = case.original["V"].detach(), case.original["mask"]
    found = _weights(got, V)
    if found is None:
        if V.shape[-2] <= V.shape[-1]:
            yield "your answer is not a weighted sum of the values: does each of its rows come from rows of V?"
        return
    mask = torch.ones_like(found, dtype=torch.bool) if mask is None else mask.expand(found.shape)
    # The query with the fewest keys: the easiest to work out on paper.
    keys = mask.sum(-1).where(wrong.any(-1), mask.shape[-1] + 1)
    place = tuple(index_of(int(keys.argmin()), keys.shape))
    row, allowed = found[place], mask[place]
    keys_allowed = allowed.nonzero().flatten().tolist()
    yield f"the smallest wrong row is query {list(place)}, which may attend to keys {keys_allowed}"
    yield f"your weights there: {_numbers(row)}"
    yield _sum("they sum", row, int(allowed.any()), nothing)
    if (forbidden := float(row[~allowed].abs().sum())) > nothing:
        yield f"forbidden keys have {forbidden:.3g} of that but should have 0"


def _weights(answer: Tensor, V: Tensor) -> Tensor | None:
    """The weights with which `answer` sums the rows of `V`; None where there is no such sum, or more than one."""
    if V.shape[-2] > V.shape[-1]:
        return None
    values = V.double()
    found = answer @ torch.linalg.pinv(values)
    error = (found @ values - answer).abs().max()
    return found if error <= 64 * torch.finfo(V.dtype).eps * values.abs().max() else None


def _pair(case: Case, got: Tensor, wrong: Tensor) -> Iterator[str]:
    *place, component = (int(i) for i in wrong.nonzero()[0])
    pair = slice(component // 2 * 2, component // 2 * 2 + 2)
    came, given = got[tuple(place)][pair], case.original["in_query_or_key"][tuple(place)][pair].double()
    yield f"the first wrong pair is {component // 2} of the vector at {place}"
    yield f"{_numbers(given)} became {_numbers(came)}"
    yield f"its length was {given.norm():.4g} and is {came.norm():.4g}: a rotation preserves it"


def _sum(what: str, row: Tensor, right: int, nothing: float) -> str:
    total = float(row.sum())
    return f"{what} to {total:.4g}, " + (
        "as expected" if abs(total - right) < nothing else f"but should sum to {right}"
    )


def _numbers(row: Tensor) -> str:
    shown = (round(x, 3) + 0.0 for x in row[:MOST].tolist())  # -0.0 + 0.0 is 0.0
    return "[" + ", ".join(f"{x:.3f}" for x in shown) + (", ...]" if len(row) > MOST else "]")
