"""Causal multi-head self-attention in steps."""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from problems.rope.steps import follow_rope
from problems.scaled_dot_product_attention.steps import follow_attention
from whichline.way.steps import Steps

ROWS = "Which rows of the weights belong to head i?"
SEE = "Which positions may a position attend to?"
TURN = "What is rotated: the queries, the keys, the values? Before the heads are split, or after?"


def follow_multihead(
    step: Steps,
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    max_seq_len: int = 0,
    theta: float | None = None,
    token_positions: Tensor | None = None,
) -> Tensor:
    step.section = "6 Multi-head self-attention"
    x, d_head = step("the input", in_features), d_model // num_heads
    step("the length of the sequence", float(x.shape[-2]), "Which axis of the input counts the positions?")
    step("the length of a head", float(d_head))
    stacked = step("W_Q, W_K and W_V, one below the other", torch.cat((q_proj_weight, k_proj_weight, v_proj_weight)))
    step("queries, keys and values in one", x @ stacked.mT)
    weights = {"queries": q_proj_weight, "keys": k_proj_weight, "values": v_proj_weight}
    heads = [project(step, name, x, weight, num_heads) for name, weight in weights.items()]
    step("the queries, keys and values of each head, stacked", torch.stack(heads), ROWS)
    q, k, v = heads
    length = x.shape[-2]
    if theta is not None:
        positions = torch.arange(length) if token_positions is None else token_positions
        step("the positions", positions, "By which position is a vector rotated?")
        each = positions.unsqueeze(-2) if positions.ndim > 1 else positions
        step("the positions, for every head", each)
        q = step("the rotated queries", turn(step, "queries", d_head, theta, max_seq_len, q, each), TURN)
        k = step("the rotated keys", turn(step, "keys", d_head, theta, max_seq_len, k, each), TURN)
    mask = step("the causal mask", torch.ones(length, length, dtype=torch.bool).tril(), SEE)
    step("the causal mask, inverted", ~mask, SEE)
    step("the mask as 0 and −inf", torch.zeros(length, length).double().masked_fill(~mask, -torch.inf), SEE)
    return join(step, attend(step, q, k, v, mask, OF_MASK), o_proj_weight)


OF_MASK = ("the mask", "the mask, inverted", "the mask as 0 and −inf")
OF_VECTORS = ("the answer", "x", "the vectors", "the first", "the second", "the pairs, rotated", "(")


def project(step: Steps, name: str, x: Tensor, weight: Tensor, heads: int) -> Tensor:
    """The queries, the keys or the values of each head."""
    step(f"the weights of the {name}, head by head", weight.unflatten(0, (heads, -1)), ROWS)
    flat = step(f"the {name}", x @ weight.mT, "Which weights make the queries, the keys and the values?")
    split = step(f"the {name} of each position, split into heads", flat.unflatten(-1, (heads, -1)), ROWS)
    return step(f"the {name} of each head", split.transpose(-2, -3), ROWS)


def turn(step: Steps, name: str, d_head: int, theta: float, max_seq_len: int, x: Tensor, positions: Tensor) -> Tensor:
    """The queries or the keys of each head, turned."""
    inner = Steps()
    turned = follow_rope(inner, d_head, theta, max_seq_len, x, positions)
    for each in inner.taken.values():
        if each.name != "the answer":
            is_of_vectors = each.name.startswith(OF_VECTORS)
            step(f"{each.name} of the {name}" if is_of_vectors else each.name, each.tensor, each.ask, each.section)
    return turned


def attend(
    step: Steps, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, known: Collection[str] = (), how: str = ""
) -> Tensor:
    """The answers of the heads; steps of attention that are `known` by other names are not taken again."""
    inner = Steps()
    answers: Any = follow_attention(inner, q, k, v, mask)
    for each in inner.taken.values():
        if each.name not in ("the queries", "the keys", "the values", "the answer", *known):
            step(each.name + how, each.tensor, each.ask, each.section)
    return step(f"the answers of the heads{how}", answers, "What does each head attend to?")


def join(step: Steps, answers: Tensor, o_proj_weight: Tensor) -> Tensor:
    """The answer that is made of those of the heads."""
    step("the heads' answers, position by position", answers.transpose(-2, -3), ROWS)
    columns = o_proj_weight.unflatten(-1, (answers.shape[-3], -1)).movedim(-2, 0).mT
    step("the columns of W_O for each head, transposed", columns, "Which columns of W_O belong to head i?")
    shares = step("the heads' shares of the answer", answers @ columns, "What mixes the heads at the end?")
    step("the sums of the heads' shares, up to each", shares.cumsum(-3))
    joined = step("the heads side by side", answers.transpose(-2, -3).flatten(-2), ROWS)
    return step("the answer", joined @ o_proj_weight.mT, "What mixes the heads at the end?")
