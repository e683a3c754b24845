"""What multi-head attention gives in float64, in a loop over the heads, and how far a right program may round."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.rounding import Bounded, Rounded, joined
from cs336_staff.problems.rope.reference import rotate, run_rope
from cs336_staff.problems.scaled_dot_product_attention.reference import (
    bound_scaled_dot_product_attention,
    run_scaled_dot_product_attention,
)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    x = in_features
    return average_heads(num_heads, *weights, x, x, x, causal(num_heads, x))


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    positions = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions

    def rotate(x: Tensor) -> Tensor:
        return run_rope(d_model // num_heads, theta, max_seq_len, x, positions)

    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    x = in_features
    return average_heads(num_heads, *weights, x, x, x, causal(num_heads, x), rotate)


def average_heads(
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: Sequence[Tensor | None],
    rotate: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    heads = []
    weights = (weight.chunk(num_heads) for weight in (q_proj_weight, k_proj_weight, v_proj_weight))
    for W_Q, W_K, W_V, mask in zip(*weights, masks, strict=True):
        Q, K, V = rotate(F.linear(query, W_Q)), rotate(F.linear(key, W_K)), F.linear(value, W_V)
        heads.append(run_scaled_dot_product_attention(Q, K, V, mask))
    return F.linear(torch.cat(heads, -1), o_proj_weight)


def causal(num_heads: int, x: Tensor) -> list[Tensor]:
    """For each head, the mask under which no position of `x` sees a later one."""
    positions = torch.arange(x.shape[-2])
    return [positions.unsqueeze(-1) >= positions] * num_heads


def bound_multihead_self_attention(num_heads: int, in_features: Rounded, **weights: Any) -> Bounded:
    x = in_features
    return _summed(bound_heads(num_heads, x, x, x, causal(num_heads, x.value), **weights))


def bound_multihead_self_attention_with_rope(
    num_heads: int, theta: float, in_features: Rounded, token_positions: Tensor | None = None, **weights: Any
) -> Bounded:
    x = in_features
    positions = torch.arange(x.value.shape[-2]) if token_positions is None else token_positions
    masks = causal(num_heads, x.value)
    turns = (lambda x: rotate(x, theta, positions)), (lambda x: rotate(x, theta, -positions))
    return _summed(bound_heads(num_heads, x, x, x, masks, *turns, **weights))


def _summed(found: Bounded) -> Bounded:
    """Of self-attention: the one sequence is queries, keys and values, and gets the sum of their gradients."""
    if "gradient of query" in found:
        query, key, value = (found[f"gradient of {name}"] for name in ("query", "key", "value"))
        found["gradient of in_features"] = query + key + value
    return found


def bound_heads(
    num_heads: int,
    query: Rounded,
    key: Rounded,
    value: Rounded,
    masks: Sequence[Tensor | None],
    turn: Callable[[Rounded], Rounded] = lambda x: x,
    turn_back: Callable[[Rounded], Rounded] = lambda x: x,
    *,
    q_proj_weight: Rounded,
    k_proj_weight: Rounded,
    v_proj_weight: Rounded,
    o_proj_weight: Rounded,
    cotangent: Rounded | None = None,
    **sizes: int,
) -> Bounded:
    def of_head(h: int, x: Rounded, axis: int) -> Rounded:
        return x.map(lambda x: x.chunk(num_heads, axis)[h])

    of_heads = None if cotangent is None else cotangent @ o_proj_weight
    heads = []
    for h, mask in enumerate(masks):
        W_Q, W_K, W_V = (of_head(h, W, 0) for W in (q_proj_weight, k_proj_weight, v_proj_weight))
        Q, K, V = turn(query @ W_Q.mT), turn(key @ W_K.mT), value @ W_V.mT
        head = bound_scaled_dot_product_attention(Q, K, V, mask, of_heads and of_head(h, of_heads, -1))
        if of_heads:
            head |= {name: turn_back(head[name]) for name in ("gradient of Q", "gradient of K")}
        heads.append(head)
    parts = {what: joined([head[what] for head in heads], lambda parts: torch.cat(parts, -1)) for what in heads[0]}
    found = {"answer": parts["answer"] @ o_proj_weight.mT}
    if cotangent is not None:
        found |= _linear_gradients("o", o_proj_weight, "heads", parts["answer"], cotangent)
        found |= _linear_gradients("q", q_proj_weight, "query", query, parts["gradient of Q"])
        found |= _linear_gradients("k", k_proj_weight, "key", key, parts["gradient of K"])
        found |= _linear_gradients("v", v_proj_weight, "value", value, parts["gradient of V"])
    return found


def _linear_gradients(weight: str, W: Rounded, name: str, x: Rounded, cotangent: Rounded) -> Bounded:
    rows = cotangent.map(lambda x: x.flatten(0, -2)).mT @ x.map(lambda x: x.flatten(0, -2))
    return {f"gradient of {weight}_proj_weight": rows, f"gradient of {name}": cotangent @ W}
