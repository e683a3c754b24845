"""Asking causal multi-head self-attention who meets whom: without RoPE, and with it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination import heads as sight
from cs336_kit.examination import multihead_rope as inner
from cs336_kit.examination import projections, rotation, scores
from cs336_kit.examination.experiment import Ask, Finding, examine
from cs336_kit.examination.heads import D_MODEL, HEADS, TOKENS, Finds, Heads, Weights, has_tokens, normal
from cs336_kit.examination.multihead_rope import Turning
from cs336_kit.examination.ordinary import Call, Calls, by_name, no_gradient, other_dtype
from cs336_kit.examination.rotation import THETA

SECTION = "6 Multi-head self-attention"
WEIGHTS = ("q_proj_weight", "k_proj_weight", "v_proj_weight", "o_proj_weight")
# The order of a tutor; each uses what the ones before it found.
SIGHT = (
    sight.batch,
    projections.output,
    projections.values,
    sight.split,
    sight.join,
    sight.mask,
    sight.sums,
)
SCORES = (scores.grouping, scores.scale, scores.roles, sight.zeros, scores.overflow)


def examine_multihead(run: Callable[..., Any]) -> list[Finding]:
    """What is wrong with `run_multihead_self_attention`, the most fundamental first."""
    ask = Ask(by_name(run, " ".join(("d_model", "num_heads", *WEIGHTS, "in_features"))))
    heads = Heads(ask, lambda weights, x: (D_MODEL, HEADS, *weights, x), "multihead", SECTION, causal=True)
    calls = Calls(ask, "multihead", SECTION, _calls())
    return examine(
        (
            calls.crash,
            calls.shape,
            *(partial(experiment, heads) for experiment in (*SIGHT, *SCORES)),
            partial(other_dtype, ask, "multihead", SECTION, calls.calls[0].arguments),
            partial(gradient, heads, calls.calls[0].arguments),
        )
    )


def examine_multihead_with_rope(run: Callable[..., Any]) -> list[Finding]:
    """What is wrong with `run_multihead_self_attention_with_rope`, the most fundamental first."""
    names = ("d_model", "num_heads", "max_seq_len", "theta", *WEIGHTS, "in_features", "token_positions")
    ask = Ask(by_name(run, " ".join(names)))
    turning = Turning(Heads(ask, _at_zero, "multihead", SECTION, True, _in_order))
    inside = turning.rotation()
    calls = Calls(ask, "multihead-rope", SECTION, _calls_with_rope())
    return examine(
        (
            calls.crash,
            calls.shape,
            *(partial(experiment, turning.heads) for experiment in SIGHT),
            partial(inner.at_zero, turning),
            *(partial(experiment, turning.heads) for experiment in SCORES),
            *(partial(experiment, turning) for experiment in (inner.used, inner.each_head)),
            *(partial(experiment, inside) for experiment in APART),
            *(partial(experiment, turning) for experiment in (inner.values, inner.default_positions)),
            partial(inner.batch_positions, turning),
            partial(other_dtype, ask, "multihead-rope", SECTION, calls.calls[0].arguments),
            partial(gradient, turning.heads, calls.calls[0].arguments),
        )
    )


def _at_zero(weights: Weights, x: Tensor) -> tuple[Any, ...]:
    """A call in which RoPE turns nothing."""
    return D_MODEL, HEADS, inner.MAX_SEQ_LEN, THETA, *weights, x, torch.zeros(x.shape[-2], dtype=torch.long)


def _in_order(weights: Weights, x: Tensor) -> tuple[Any, ...]:
    return *_at_zero(weights, x)[:-1], torch.arange(x.shape[-2])


# Relative to each other queries and keys show no more of a rotation than this.
APART = (rotation.skipped, rotation.pairs, rotation.order, rotation.kind, rotation.direction, rotation.frequency)


def _calls_with_rope() -> list[Call]:
    rows = torch.tensor([3, 0, 7, 1, 2])
    own = torch.stack((rows, rows.flip(0)))
    inputs = [
        *((f"{n} tokens and 3 heads of length 4", (n,), rows[:n], has_tokens) for n in (5, 3, 4)),
        ("a single token", (1,), rows[:1], lambda case: True),
        ("no token_positions", (5,), None, inner.has_default_positions),
        ("a batch of 2 sequences and token_positions of shape (5,)", (2, 5), rows, partial(_has_dims, 3)),
        ("a batch of 2 sequences and token_positions of shape (2, 5)", (2, 5), own, inner.has_own_positions),
        ("a batch of 2 by 3 sequences", (2, 3, 5), rows, partial(_has_dims, 4)),
    ]
    calls = [
        Call(
            words,
            (D_MODEL, HEADS, 8, THETA, *normal(4, D_MODEL, D_MODEL), normal(*shape, D_MODEL))
            + (() if positions is None else (positions,)),
            (*shape, D_MODEL),
            touches,
        )
        for words, shape, positions, touches in inputs
    ]
    longest = (D_MODEL, HEADS, 5, THETA, *normal(4, D_MODEL, D_MODEL), normal(5, D_MODEL), torch.arange(5))
    at_the_end = Call("max_seq_len = 5 and 5 tokens", longest, (5, D_MODEL), _reaches_the_end)
    return [*calls, at_the_end]


def _reaches_the_end(case: Case) -> bool:
    if "theta" not in case.inputs:
        return False
    last = case.in_features.shape[-2] - 1 if case.token_positions is None else int(case.token_positions.max())
    return last == case.max_seq_len - 1


def _calls() -> list[Call]:
    sizes = [
        *((f"{n} tokens and 3 heads of length 4", D_MODEL, HEADS, (n,), has_tokens) for n in (5, 3, 4)),
        ("a single token", D_MODEL, HEADS, (1,), lambda case: True),
        ("a batch of 2 sequences", D_MODEL, HEADS, (2, TOKENS), partial(_has_dims, 3)),
        ("a batch of 2 by 3 sequences", D_MODEL, HEADS, (2, 3, TOKENS), partial(_has_dims, 4)),
        ("one head", D_MODEL, 1, (TOKENS,), lambda case: case.num_heads == 1),
        ("3 heads of length 1", 3, 3, (TOKENS,), lambda case: case.num_heads == case.d_model),
    ]
    return [
        Call(
            words,
            (d_model, num_heads, *normal(4, d_model, d_model), normal(*shape, d_model)),
            (*shape, d_model),
            touches,
        )
        for words, d_model, num_heads, shape, touches in sizes
    ]


def _has_dims(dims: int, case: Case) -> bool:
    return case.in_features.ndim >= dims


def gradient(heads: Heads, arguments: tuple[Any, ...], sequences: tuple[str, ...] = ("in_features",)) -> Finds:
    """To what is used; that a weight is not is a finding of its own."""
    first = next(place for place, argument in enumerate(arguments) if isinstance(argument, Tensor))
    names = {place: name for place, name in enumerate((*WEIGHTS, *sequences), first) if name not in heads.unused}
    return no_gradient(heads.ask, heads.problem, heads.section, arguments, names)
