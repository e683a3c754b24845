"""Asking causal multi-head self-attention who meets whom: without RoPE, and with it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination import heads as sight
from cs336_kit.examination import multihead_rope as inner
from cs336_kit.examination import projections, rotation, scores
from cs336_kit.examination.contract import Contract
from cs336_kit.examination.crash import Variation, try_calls
from cs336_kit.examination.experiment import Ask, Finding, by_name, examine
from cs336_kit.examination.heads import D_MODEL, HEADS, TOKENS, Finds, Heads, Weights, has_tokens, normal
from cs336_kit.examination.multihead_rope import Turning
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
    """Say what is wrong with `run_multihead_self_attention`, the most fundamental first."""
    names = ("d_model", "num_heads", *WEIGHTS, "in_features")
    ask = Ask(by_name(run, names))
    heads = Heads(ask, lambda weights, x: (D_MODEL, HEADS, *weights, x), "multihead", SECTION, causal=True)
    calls = try_calls(ask, "multihead", SECTION, Call(), USUAL, VARIATIONS)
    usual = calls.works or Call()
    contract = Contract(ask, "multihead", SECTION, names, usual.arguments, usual.shape, (torch.float32,))
    experiments = (
        *(partial(experiment, heads) for experiment in (*SIGHT, *SCORES)),
        contract.dtype,
        partial(gradients, heads, contract),
    )
    return [*calls.findings, *examine(experiments)]


def examine_multihead_with_rope(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_multihead_self_attention_with_rope`, the most fundamental first."""
    names = ("d_model", "num_heads", "max_seq_len", "theta", *WEIGHTS, "in_features", "token_positions")
    ask = Ask(by_name(run, names))
    turning = Turning(Heads(ask, _at_zero, "multihead", SECTION, True, _in_order))
    inside = turning.rotation()
    calls = try_calls(ask, "multihead-rope", SECTION, CallWithRope(), USUAL, VARIATIONS_WITH_ROPE)
    usual = calls.works or CallWithRope()
    contract = Contract(ask, "multihead-rope", SECTION, names, usual.arguments, usual.shape, (torch.float32,))
    experiments = (
        *(partial(experiment, turning.heads) for experiment in SIGHT),
        partial(inner.at_zero, turning),
        *(partial(experiment, turning.heads) for experiment in SCORES),
        *(partial(experiment, turning) for experiment in (inner.used, inner.each_head)),
        *(partial(experiment, inside) for experiment in APART),
        *(partial(experiment, turning) for experiment in (inner.values, inner.default_positions)),
        partial(inner.batch_positions, turning),
        contract.dtype,
        partial(gradients, turning.heads, contract),
    )
    return [*calls.findings, *examine(experiments)]


def _at_zero(weights: Weights, x: Tensor) -> tuple[Any, ...]:
    """A call in which RoPE turns nothing."""
    return D_MODEL, HEADS, inner.MAX_SEQ_LEN, THETA, *weights, x, torch.zeros(x.shape[-2], dtype=torch.long)


def _in_order(weights: Weights, x: Tensor) -> tuple[Any, ...]:
    return *_at_zero(weights, x)[:-1], torch.arange(x.shape[-2])


# Relative to each other queries and keys show no more of a rotation than this.
APART = (rotation.skipped, rotation.pairs, rotation.order, rotation.kind, rotation.direction, rotation.frequency)


@dataclass(frozen=True)
class Call:
    """The sizes of a call without RoPE."""

    batch: tuple[int, ...] = ()
    tokens: int = TOKENS
    d_model: int = D_MODEL
    num_heads: int = HEADS

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.d_model, self.num_heads, *self.tensors()

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, self.tokens, self.d_model)

    def tensors(self) -> tuple[Tensor, ...]:
        return *normal(4, self.d_model, self.d_model), normal(*self.shape)


@dataclass(frozen=True)
class CallWithRope(Call):
    """The sizes of a call with RoPE; with `own`, each sequence of the batch has positions of its own."""

    max_seq_len: int = 8
    positions: tuple[int, ...] | None = (3, 0, 7, 1, 2)
    own: bool = False

    @property
    def arguments(self) -> tuple[Any, ...]:
        call = (self.d_model, self.num_heads, self.max_seq_len, THETA, *self.tensors())
        if self.positions is None:
            return call
        positions = torch.tensor(self.positions[: self.tokens])
        return *call, torch.stack((positions, positions.flip(0))) if self.own else positions


USUAL = f"for {TOKENS} tokens and {HEADS} heads of length {D_MODEL // HEADS}"
SPLIT = "Which axis do you split into heads, and which axis then stands before it?"
LEADING = "Which two axes does attention work on? Should it matter how many come before them?"
POSITIONS = "Which shapes may `token_positions` have, and what holds when nobody passes them?"


def _has_dims(dims: int, case: Case) -> bool:
    return case.in_features.ndim >= dims


def _reaches_the_end(case: Case) -> bool:
    if "theta" not in case.inputs:
        return False
    last = case.in_features.shape[-2] - 1 if case.token_positions is None else int(case.token_positions.max())
    return last == case.max_seq_len - 1


def _tokens(tokens: int) -> Variation[Any]:
    return Variation(f"{tokens}-tokens", f"for {tokens} tokens", lambda c: replace(c, tokens=tokens), SPLIT, has_tokens)


SIZES: tuple[Variation[Any], ...] = (
    _tokens(HEADS),
    _tokens(D_MODEL // HEADS),
    Variation("one-token", "for a single token", lambda c: replace(c, tokens=1), SPLIT),
    Variation("3d", "for a batch of 2 sequences", lambda c: replace(c, batch=(2,)), LEADING, partial(_has_dims, 3)),
    Variation("4d", "for a batch of 2 by 3", lambda c: replace(c, batch=(2, 3)), LEADING, partial(_has_dims, 4)),
)
VARIATIONS: tuple[Variation[Call], ...] = (
    *SIZES,
    Variation("one-head", "for one head", lambda c: replace(c, num_heads=1), SPLIT, lambda case: case.num_heads == 1),
    Variation(
        "short-heads",
        "for 3 heads of length 1",
        lambda c: replace(c, d_model=3, num_heads=3),
        SPLIT,
        lambda case: case.num_heads == case.d_model,
    ),
)
VARIATIONS_WITH_ROPE: tuple[Variation[CallWithRope], ...] = (
    *SIZES,
    Variation(
        "default-positions",
        "without token_positions",
        lambda c: replace(c, positions=None),
        POSITIONS,
        inner.has_default_positions,
    ),
    Variation(
        "own-positions",
        "with token_positions of shape (2, 5) for a batch of 2",
        lambda c: replace(c, batch=(2,), own=True),
        POSITIONS,
        inner.has_own_positions,
    ),
    Variation(
        "last-position",
        "with max_seq_len = 5 and positions from 0 to 4",
        lambda c: replace(c, max_seq_len=5, positions=(0, 1, 2, 3, 4)),
        "How many positions are there from 0 to max_seq_len - 1, and how many rows does your table have?",
        _reaches_the_end,
    ),
)


def gradients(heads: Heads, contract: Contract) -> Finds:
    """Examine those of what is used; that a weight is not used is a finding of its own."""
    return contract.gradients(heads.unused)
