"""Scaled dot-product attention."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import index_of
from cs336_kit.engine.on_paper import tell_numbers, tell_sum
from cs336_kit.engine.room import Functions, Room
from cs336_kit.examination.table import widen
from cs336_kit.problems.scaled_dot_product_attention.examination import examine_attention
from cs336_kit.problems.scaled_dot_product_attention.program import RIGHT, attend
from cs336_kit.problems.scaled_dot_product_attention.steps import follow_attention


def tell_query(case: Case, got: Tensor, wrong: Tensor, nothing: float) -> Iterator[str]:
    """The wrong query with the fewest keys, which is the easiest to work out: its weights, and what they sum to."""
    V, mask = case.original["V"].detach(), case.original["mask"]
    found = find_weights(got, V)
    if found is None:
        if V.shape[-2] <= V.shape[-1]:
            yield "your answer is not a weighted sum of the values: does each of its rows come from rows of V?"
        return
    mask = torch.ones_like(found, dtype=torch.bool) if mask is None else mask.expand(found.shape)
    keys = mask.sum(-1).where(wrong.any(-1), mask.shape[-1] + 1)
    place = tuple(index_of(int(keys.argmin()), keys.shape))
    row, allowed = found[place], mask[place]
    keys_allowed = allowed.nonzero().flatten().tolist()
    yield f"the smallest wrong row is query {list(place)}, which may attend to keys {keys_allowed}"
    yield f"your weights there: {tell_numbers(row)}"
    yield tell_sum("they sum", row, int(allowed.any()), nothing)
    if (forbidden := float(row[~allowed].abs().sum())) > nothing:
        yield f"forbidden keys have {forbidden:.3g} of that but should have 0"


def find_weights(answer: Tensor, V: Tensor) -> Tensor | None:
    """The weights with which `answer` sums the rows of `V`; None where there is no such sum, or more than one."""
    if V.shape[-2] > V.shape[-1]:
        return None
    values = V.double()
    found = answer @ torch.linalg.pinv(values)
    error = (found @ values - answer).abs().max()
    return found if error <= 64 * torch.finfo(V.dtype).eps * values.abs().max() else None


def attention_on(earlier: Functions) -> Callable[..., Tensor]:
    """Attention with the softmax of whoever built that, which is given float32 at least."""

    def run(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        softmax = partial(earlier["run_softmax"], dim=-1)
        return attend({**RIGHT, "softmax": softmax}, widen(Q), widen(K), widen(V), mask).to(Q.dtype)

    return run


ROOM = Room(
    examinations={"run_scaled_dot_product_attention": examine_attention},
    steps={"run_scaled_dot_product_attention": follow_attention},
    on_paper=tell_query,
    right={
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: F.scaled_dot_product_attention(Q, K, V, mask)
    },
    on_earlier={"run_scaled_dot_product_attention": attention_on},
    look="uv run cs336 debug --case {case}",
)
