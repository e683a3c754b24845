"""A module of attention that drops something else, or returns other weights than it used."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.misconceptions.parts import Misconception, attention, hide, scale

# wrong(Q, K, V, mask, p) -> output and weights
Wrong = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], tuple[Tensor, Tensor]]

SCALE_HINT = (
    "What is the average of a weight over many calls, when it is 0 with probability p? What keeps it as it was?"
)
PLACE_HINT = "What is dropped: scores, weights, values or output? What are the weights of one query that become 0?"
RETURN_HINT = "Multiply the weights that you return by the values. Is it the output that you return?"


def weigh(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q, K, torch.eye(K.shape[-2], dtype=K.dtype), mask)


def dropping(drop: Callable[[Tensor, float], Tensor]) -> Wrong:
    """Attention that drops weights in a wrong way."""

    def wrong(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
        weights = weigh(Q, K, mask)
        if p:
            weights = drop(weights, p)
        return weights @ V, weights

    return wrong


def renormalised(weights: Tensor, p: float) -> Tensor:
    kept = F.dropout(weights, p)
    return kept / kept.sum(-1, keepdim=True).clamp_min(1e-30)


def on_output(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    weights = weigh(Q, K, mask)
    return F.dropout(weights @ V, p), weights


def on_scores(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    identity = torch.eye(K.shape[-2], dtype=K.dtype)
    weights = attention(Q, K, identity, mask, score=lambda Q, K: F.dropout(scale(Q, K), p))
    return weights @ V, weights


def returning(given: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> Wrong:
    """Attention that is right, and returns other weights with its output."""

    def wrong(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
        return F.dropout(weigh(Q, K, mask), p) @ V, given(Q, K, mask)

    return wrong


def hidden_scores(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    return scale(Q, K) if mask is None else hide(scale(Q, K), mask)


def in_module(id: str, name: str, hint: str, wrong: Wrong, always: bool = False, sign: str = "") -> Misconception:
    """`always`: in evaluation too."""

    def adapter(
        Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
    ) -> tuple[Tensor, Tensor]:
        torch.manual_seed(seed)
        return wrong(Q, K, V, mask, dropout if training or always else 0.0)

    return Misconception(id, name, hint, "attention_module", {"run_scaled_dot_product_attention_module": adapter}, sign)


ENTRIES = (
    in_module(
        "module-dropout-in-evaluation",
        "you dropped weights in evaluation too",
        "Which attribute of a module do train() and eval() set? Where does your dropout look at it?",
        dropping(F.dropout),
        always=True,
        sign="dropout",
    ),
    in_module(
        "module-no-dropout",
        "you dropped nothing in training",
        "Call your module twice in training. Why is the answer the same?",
        dropping(lambda weights, p: weights),
    ),
    in_module(
        "module-dropout-not-rescaled",
        "you did not divide the weights that are kept by 1 - p",
        SCALE_HINT,
        dropping(lambda weights, p: weights * (torch.rand(weights.shape) >= p)),
    ),
    in_module(
        "module-dropout-divides-by-p",
        "you took p for the probability with which a weight is kept",
        SCALE_HINT,
        dropping(lambda weights, p: F.dropout(weights, 1 - p)),
    ),
    in_module(
        "module-dropout-keeps-p",
        "you dropped a weight with probability 1 - p, not p, and divided by 1 - p all the same",
        "With p = 0.1, what share of your weights is 0? Which side of the comparison should be kept?",
        dropping(lambda weights, p: weights * (torch.rand(weights.shape) < p) / (1 - p)),
    ),
    in_module(
        "module-dropout-renormalised",
        "you made the weights that are left sum to 1 again",
        "Should a query that has lost its largest weight look at the others more, or get less?",
        dropping(renormalised),
    ),
    in_module(
        "module-dropout-on-output", "you applied dropout to the output, not to the weights", PLACE_HINT, on_output
    ),
    in_module(
        "module-dropout-on-scores", "you applied dropout to the scores, not to the weights", PLACE_HINT, on_scores
    ),
    in_module(
        "module-weights-before-dropout",
        "you returned the weights as they were before dropout",
        RETURN_HINT,
        returning(weigh),
    ),
    in_module(
        "module-weights-before-mask",
        "you returned the weights as they are without the mask",
        RETURN_HINT,
        returning(lambda Q, K, mask: weigh(Q, K, None)),
    ),
    in_module(
        "module-scores-as-weights",
        "you returned the scores, not the weights that softmax makes of them",
        "What should each row of what you return sum to?",
        returning(hidden_scores),
    ),
)
