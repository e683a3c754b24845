"""A module of attention that drops something else, or returns other weights than it used."""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.room import Misconception, Part, wrong
from cs336_staff.problems.attention_module.programs import dropping, module
from cs336_staff.problems.scaled_dot_product_attention.programs import attention, weigh


def renormalised(weights: Tensor, p: float) -> Tensor:
    kept = F.dropout(weights, p)
    return kept / kept.sum(-1, keepdim=True).clamp_min(1e-30)


def on_output(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    weights = weigh(Q, K, mask)
    return F.dropout(weights @ V, p), weights


def on_scores(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    def dropped(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        return attention(Q, K, V, mask, limit=lambda S: F.dropout(S, p))

    weights = weigh(Q, K, mask, dropped)
    return weights @ V, weights


def scores(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    found = Q @ K.mT / math.sqrt(Q.shape[-1])
    return found if mask is None else found.masked_fill(~mask, -math.inf)


def returning(given: Part) -> Part:
    """Attention that is right, and returns `given(Q, K, mask)` with its output."""

    def attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
        return F.dropout(weigh(Q, K, mask), p) @ V, given(Q, K, mask)

    return attend


def in_module(id: str, attend: Part, *, always: bool = False) -> Misconception:
    """A wrong `attend(Q, K, V, mask, p)`, which gives output and weights; `always`: drops in evaluation too."""
    return wrong(id, partial(module, attend=attend, always=always))


MISTAKES = (
    in_module("module-dropout-in-evaluation", dropping(F.dropout), always=True),
    in_module("module-no-dropout", dropping(lambda weights, p: weights)),
    in_module("module-dropout-not-rescaled", dropping(lambda weights, p: weights * (torch.rand(weights.shape) >= p))),
    in_module("module-dropout-divides-by-p", dropping(lambda weights, p: F.dropout(weights, 1 - p))),
    in_module("module-dropout-share", dropping(lambda weights, p: weights * (torch.rand(weights.shape) < p) / (1 - p))),
    in_module("module-dropout-renormalised", dropping(renormalised)),
    in_module("module-dropout-on-output", on_output),
    in_module("module-dropout-on-scores", on_scores),
    in_module("module-weights-before-dropout", returning(weigh)),
    in_module("module-weights-before-mask", returning(lambda Q, K, mask: weigh(Q, K, None))),
    in_module("module-scores-as-weights", returning(scores)),
)
