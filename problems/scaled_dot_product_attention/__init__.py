"""Scaled dot-product attention."""

from collections.abc import Iterator

import torch
from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import find_index
from whichline.engine.on_paper import describe_numbers, describe_sum


def on_paper(case: Case, got: Tensor, wrong: Tensor, nothing: float) -> Iterator[str]:
    """Describe the weights of the wrong query with the fewest keys, which is the easiest to compute by hand."""
    V, mask = case.original["V"].detach(), case.original["mask"]
    found = find_weights(got, V)
    if found is None:
        if V.shape[-2] <= V.shape[-1]:
            yield "your answer is not a weighted sum of the values: does each of its rows come from rows of V?"
        return
    mask = torch.ones_like(found, dtype=torch.bool) if mask is None else mask.expand(found.shape)
    keys = mask.sum(-1).where(wrong.any(-1), mask.shape[-1] + 1)
    place = tuple(find_index(int(keys.argmin()), keys.shape))
    row, allowed = found[place], mask[place]
    keys_allowed = allowed.nonzero().flatten().tolist()
    yield f"the smallest wrong row is query {list(place)}, which may attend to keys {keys_allowed}"
    yield f"your weights there: {describe_numbers(row)}"
    yield describe_sum("they sum", row, int(allowed.any()), nothing)
    if (forbidden := float(row[~allowed].abs().sum())) > nothing:
        yield f"forbidden keys have {forbidden:.3g} of that but should have 0"


def find_weights(answer: Tensor, V: Tensor) -> Tensor | None:
    """Find the weights with which `answer` sums the rows of `V`; None if there are none, or several."""
    if V.shape[-2] > V.shape[-1]:
        return None
    values = V.double()
    found = answer @ torch.linalg.pinv(values)
    error = (found @ values - answer).abs().max()
    return found if error <= 64 * torch.finfo(V.dtype).eps * values.abs().max() else None
