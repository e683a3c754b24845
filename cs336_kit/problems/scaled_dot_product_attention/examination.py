"""Examine a student's attention."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cs336_kit.examination.calls import DTYPES
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Ask, Finding, about, examine
from cs336_kit.problems.scaled_dot_product_attention.facts import facts
from cs336_kit.problems.scaled_dot_product_attention.program import TABLE, normal
from cs336_kit.problems.scaled_dot_product_attention.variations import VARIATIONS, Call, hides_all


@about("attention", "3 Attention")
def examine_attention(run: Callable[..., Any], dtypes: tuple[torch.dtype, ...] = DTYPES) -> list[Finding]:
    """Say what is wrong with `run(Q, K, V, mask)`, the most fundamental first."""
    ask = Ask(run, "Q", "K", "V", "mask")
    found = diagnose(ask, TABLE, Call(), "for (batch, positions, d) with a mask", VARIATIONS, facts, dtypes)
    return [*found, *examine(ask, (gradients_with_nothing,))]


def gradients_with_nothing(ask: Ask) -> Finding | None:
    """Check that no gradient is NaN where a query may not attend to any key, and its answer is as it should be."""
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    answer, leaves = ask.with_graph(*normal((2,), 4, 4, 4, 4), mask)
    if not isinstance(answer, Tensor) or not answer.requires_grad or answer[..., 1, :].any() or answer.isnan().any():
        return None
    try:
        slopes = torch.autograd.grad(answer.sum(), leaves, allow_unused=True)
    except Exception:  # other gradients fail too, which is a finding of its own
        return None
    wrong = [name for name, slope in zip("QKV", slopes, strict=True) if slope is not None and slope.isnan().any()]
    if not wrong:
        return None
    measured = f"Where a query may attend to nothing, the gradient of {' and '.join(wrong)} is NaN."
    means = "Something on the way to the answer is NaN or infinite: hidden in the answer, it is still in the gradient."
    question = "What could the softmax of such a row be given instead of nothing but -inf, so that NaN never arises?"
    return Finding("nothing-gradient", measured, means, question, lambda c: hides_all(c) and bool(c.gradients))
