"""Causal multi-head self-attention in steps."""

from typing import Any

import torch
from torch import Tensor

from cs336_kit.problems.rope.steps import follow_rope
from cs336_kit.problems.scaled_dot_product_attention.steps import follow_attention
from cs336_kit.way.steps import Steps

ROWS = "Which rows of the weights belong to head i?"
SEE = "Which positions may a position attend to?"
TURN = "What is turned: the queries, the keys, the values? Before the heads are split, or after?"


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
    x, d_head = step("the input", in_features), d_model // num_heads
    step("the length of the sequence", float(x.shape[-2]), "Which axis of the input counts the positions?", 6)
    step("the length of a head", float(d_head))
    stacked = step("W_Q, W_K and W_V, one below the other", torch.cat((q_proj_weight, k_proj_weight, v_proj_weight)))
    step("queries, keys and values in one", x @ stacked.mT)
    heads = []
    for name, weight in (("queries", q_proj_weight), ("keys", k_proj_weight), ("values", v_proj_weight)):
        step(f"the weights of the {name}, head by head", weight.unflatten(0, (num_heads, d_head)), ROWS, 6)
        flat = step(f"the {name}", x @ weight.mT, "Which weights make the queries, the keys and the values?", 6)
        split = step(f"the {name} of each position, split into heads", flat.unflatten(-1, (num_heads, d_head)), ROWS, 6)
        heads.append(step(f"the {name} of each head", split.transpose(-2, -3), ROWS, 6))
    step("the queries, keys and values of each head, stacked", torch.stack(heads), ROWS, 6)
    q, k, v = heads
    length = x.shape[-2]
    if theta is not None:
        positions = torch.arange(length) if token_positions is None else token_positions
        step("the positions", positions, "By which position is a vector turned?", 6)
        each = positions.unsqueeze(-2) if positions.ndim > 1 else positions
        step("the positions, for every head", each)
        q = step("the turned queries", _turn(step, "queries", d_head, theta, max_seq_len, q, each), TURN, 6)
        k = step("the turned keys", _turn(step, "keys", d_head, theta, max_seq_len, k, each), TURN, 6)
    mask = step("the causal mask", torch.ones(length, length, dtype=torch.bool).tril(), SEE, 6)
    step("the causal mask, inverted", ~mask, SEE, 6)
    step("the mask as 0 and −inf", torch.zeros(length, length).double().masked_fill(~mask, -torch.inf), SEE, 6)
    inner = Steps()
    answers: Any = follow_attention(inner, q, k, v, mask)
    for each in inner.taken.values():
        if each.name not in (
            "the queries",
            "the keys",
            "the values",
            "the answer",
            "the mask",
            "the mask, inverted",
            "the mask as 0 and −inf",
        ):
            step(each.name, each.tensor, each.ask, each.section)
    step("the answers of the heads", answers, "What does each head attend to?", 6)
    step("the heads' answers, position by position", answers.transpose(-2, -3), ROWS, 6)
    columns = o_proj_weight.unflatten(-1, (num_heads, d_head)).movedim(-2, 0).mT
    step("the columns of W_O for each head, transposed", columns, "Which columns of W_O belong to head i?", 6)
    shares = step("the heads' shares of the answer", answers @ columns, "What mixes the heads at the end?", 6)
    step("the sums of the heads' shares, up to each", shares.cumsum(-3))
    joined = step("the heads side by side", answers.transpose(-2, -3).flatten(-2), ROWS, 6)
    return step("the answer", joined @ o_proj_weight.mT, "What mixes the heads at the end?", 6)


OF_VECTORS = ("the answer", "x", "the vectors", "the first", "the second", "the pairs, turned", "(")


def _turn(step: Steps, name: str, d_head: int, theta: float, max_seq_len: int, x: Tensor, positions: Tensor) -> Tensor:
    """The queries or the keys of each head, turned."""
    inner = Steps()
    turned = follow_rope(inner, d_head, theta, max_seq_len, x, positions)
    for each in inner.taken.values():
        if each.name != "the answer":
            is_of_vectors = each.name.startswith(OF_VECTORS)
            step(f"{each.name} of the {name}" if is_of_vectors else each.name, each.tensor, each.ask, each.section)
    return turned
