"""Examine a student's causal multi-head self-attention, without RoPE and with it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.calls import Variation
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Finding, about, by_name
from cs336_kit.problems.multihead_self_attention.facts import (
    D_HEAD,
    D_MODEL,
    HEADS,
    TOKENS,
    facts,
    facts_with_rope,
    first_input,
    has_default_positions,
    without_rope,
)
from cs336_kit.problems.multihead_self_attention.program import TABLE, THETA, WITH_ROPE, normal

SECTION = "6 Multi-head self-attention"
DTYPES = (torch.float32,)
WEIGHTS = ("q_proj_weight", "k_proj_weight", "v_proj_weight", "o_proj_weight")
NAMES = ("d_model", "num_heads", *WEIGHTS, "in_features")


@about("multihead", SECTION)
def examine_multihead(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_multihead_self_attention`, the most fundamental first."""
    measured = partial(facts, without_rope, True)
    return diagnose(by_name(run, *NAMES), TABLE, Call(), USUAL, VARIATIONS, measured, DTYPES)


def examine_multihead_with_rope(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_multihead_self_attention_with_rope`, the most fundamental first.

    A mistake is the same finding as without RoPE; what was measured is one of its own.
    """
    ask = by_name(run, *NAMES, "max_seq_len", "theta", "token_positions")
    found = diagnose(ask, WITH_ROPE, CallWithRope(), USUAL, VARIATIONS_WITH_ROPE, facts_with_rope, DTYPES)
    return [
        replace(each, id=f"multihead-{'' if each.program else 'rope-'}{each.id}", section=SECTION) for each in found
    ]


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


USUAL = f"for {TOKENS} tokens and {HEADS} heads of length {D_MODEL // HEADS}"
SPLIT = "Which axis do you split into heads, and which axis then stands before it?"
LEADING = "Which two axes does attention work on? Should it matter how many come before them?"


def _has_dims(dims: int, case: Case) -> bool:
    return case.in_features.ndim >= dims


def _tokens(tokens: int) -> Variation:
    return Variation(
        f"{tokens}-tokens",
        f"for {tokens} tokens",
        {"tokens": tokens},
        SPLIT,
        lambda case: first_input(case).shape[-2] > 1,
    )


SIZES = (
    _tokens(HEADS),
    _tokens(D_HEAD),
    Variation("one-token", "for a single token", {"tokens": 1}, SPLIT),
    Variation("3d", "for a batch of 2 sequences", {"batch": (2,)}, LEADING, partial(_has_dims, 3)),
    Variation("4d", "for a batch of 2 by 3", {"batch": (2, 3)}, LEADING, partial(_has_dims, 4)),
)
VARIATIONS = (
    *SIZES,
    Variation("one-head", "for one head", {"num_heads": 1}, SPLIT, lambda case: case.num_heads == 1),
    Variation(
        "short-heads",
        "for 3 heads of length 1, without RoPE",
        {"d_model": 3, "num_heads": 3},
        "What in this line depends on the length of a head, and is it needed without RoPE?",
        lambda case: case.num_heads == case.d_model,
    ),
)


@dataclass(frozen=True)
class CallWithRope(Call):
    """The sizes of a call with RoPE; with `own`, each sequence of the batch has positions of its own."""

    max_seq_len: int = 8
    positions: tuple[int, ...] | None = (3, 0, 7, 1, 2)
    own: bool = False

    @property
    def arguments(self) -> tuple[Any, ...]:
        call = (self.d_model, self.num_heads, *self.tensors(), self.max_seq_len, THETA)
        if self.positions is None:
            return call
        positions = torch.tensor(self.positions[: self.tokens])
        return *call, torch.stack((positions, positions.flip(0))) if self.own else positions


def _has_own_positions(case: Case) -> bool:
    """Say whether each sequence has its own positions."""
    positions = case.inputs.get("token_positions")
    return positions is not None and positions.ndim > 1


def _reaches_the_end(case: Case) -> bool:
    if "theta" not in case.inputs:
        return False
    last = case.in_features.shape[-2] - 1 if case.token_positions is None else int(case.token_positions.max())
    return last == case.max_seq_len - 1


POSITIONS = "Which shapes may `token_positions` have, and what holds when nobody passes them?"
VARIATIONS_WITH_ROPE = (
    *SIZES,
    Variation("default-positions", "without token_positions", {"positions": None}, POSITIONS, has_default_positions),
    Variation(
        "own-positions",
        "with token_positions of shape (2, 5) for a batch of 2",
        {"batch": (2,), "own": True},
        POSITIONS,
        _has_own_positions,
    ),
    Variation(
        "last-position",
        "with max_seq_len = 5 and positions from 0 to 4",
        {"max_seq_len": 5, "positions": (0, 1, 2, 3, 4)},
        "How many positions are there from 0 to max_seq_len - 1, and how many rows does your table have?",
        _reaches_the_end,
    ),
)
