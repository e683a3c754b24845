"""Measurements of a student's attention whose answers no known mistake explains."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cs336_kit.engine.compare import listed, near
from cs336_kit.examination.experiment import Ask, Finding, Finds, number, require, span
from cs336_kit.examination.table import Answers
from cs336_kit.problems.scaled_dot_product_attention.program import MASKS, normal

Sizes = tuple[tuple[int, ...], int, int, int]
SIZES: tuple[Sizes, Sizes] = (((2,), 5, 4, 7), ((3, 2), 4, 5, 10))  # batch, queries, keys, d_k


def facts(ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    """The experiments, where the answers without a mask are explained, and where they are not."""
    of_mask = hidden_keys, nothing_to_see
    return (sums, scores, *of_mask) if unexplained else of_mask


def ask_weights(ask: Ask, Q: Tensor, K: Tensor, mask: Tensor | None = None) -> Tensor:
    """The weights, (..., queries, keys): with the identity for V the answer is the weights."""
    keys = K.shape[-2]
    return ask.tensor((*Q.shape[:-1], keys), Q, K, torch.eye(keys).expand(*K.shape[:-1], keys), mask)


def sums(ask: Ask) -> Finds:
    """Measure what the weights sum to."""
    for sizes in SIZES:
        Q, K, _ = normal(*sizes, 1)
        weights = ask_weights(ask, Q, K)
        where = f"For {'three' if Q.ndim == 3 else 'four'} dimensions"
        if nan := int(weights.isnan().sum()):
            measured = f"{where}, {nan} of {weights.numel()} weights are NaN."
            return Finding("nan", measured, "", "Where does an infinity meet a 0 or another infinity?")
        if not near(total := weights.sum(-1), 1.0):
            measured = f"{where}, the weights of a query sum to {span(total)} over the keys; it should be 1."
            question = "What do you divide the exponentials by, and along which axis?"
            return Finding("weights-sum", measured, "", question)
    return None


def scores(ask: Ask) -> Finds:
    """Measure the factor in front of Q Kᵀ, for two widths."""
    factors = []
    for sizes in SIZES:
        Q, K, _ = normal(*sizes, 1)
        came, products = ask_weights(ask, Q, K).log(), (Q @ K.mT).double()
        require(came.isfinite().all())
        came, products = came - came.mean(-1, keepdim=True), products - products.mean(-1, keepdim=True)
        factor = float((came * products).sum() / products.square().sum())
        if not near(came, factor * products, 1e-2):
            part = float((came - factor * products).norm() / came.norm())
            measured = f"The logarithms of your weights are not a multiple of Q Kᵀ: {part:.0%} of their size is not."
            return Finding("scores-other", measured, "", "What do you do with the scores before the softmax?")
        factors.append((factor, sizes[-1]))
    if all(near(factor, d_k**-0.5) for factor, d_k in factors):
        return None
    measured = " and ".join(f"{number(c)} for d_k = {d} (1/√d_k is {number(d**-0.5)})" for c, d in factors)
    question = "What is the variance of the dot product of two random vectors of length d_k?"
    return Finding("scale-other", f"Your scores are Q Kᵀ times {measured}.", "", question)


def hidden_keys(ask: Ask) -> Finds:
    """Read the weights of the first query that sees what it should not, or does not see what it should."""
    Q, K, _ = normal((2,), 4, 4, 4, 4)
    weights = ask_weights(ask, Q, K, MASKS)
    sees = weights.abs() > 1e-6
    require(math.isfinite(float(weights.sum())))
    for sequence, query in (sees != MASKS).any(-1).nonzero().tolist()[:1]:
        visible = MASKS[sequence, query].nonzero().flatten().tolist()
        keys = f"{'keys' if len(visible) > 1 else 'key'} {listed(visible)}"
        row = ", ".join(map(number, weights[sequence, query]))
        measured = (
            f"The mask lets query {query} of sequence {sequence} attend to {keys} of 4; where V is the unit matrix, "
            f"its answer is {row}."
        )
        question = "Which of your lines decides whether a query sees a key, and what does it decide here?"
        return Finding("mask-other", measured, "", question)
    return None


def nothing_to_see(ask: Ask) -> Finds:
    """Read the answer to a query that may not attend to any key."""
    Q, K, _ = normal((2,), 4, 4, 4, 4)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    row = ask_weights(ask, Q, K, mask)[0, 1]
    if near(row + 1, 1.0):
        return None
    row = ", ".join(map(number, row))
    measured = f"A query that may attend to nothing gives its keys the weights {row}; it should get zeros."
    question = "What is the softmax of scores that are all -inf? What should such a query get?"
    return Finding("nothing-other", measured, "", question)
