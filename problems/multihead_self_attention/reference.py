"""Causal multi-head self-attention. What nothing uses is another right way to the same numbers."""

import math

import torch
from torch import Tensor

from problems.linear.reference import apply_linear
from problems.rope.reference import run_rope
from problems.scaled_dot_product_attention.reference import run_scaled_dot_product_attention


# 6 Multi-head self-attention
def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return attend(num_heads, weights, in_features)  #: the answer. What mixes the heads at the end?


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
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    #: the answer. What mixes the heads at the end?
    return attend(num_heads, weights, in_features, max_seq_len, theta, token_positions)


def attend(
    num_heads: int,
    weights: tuple[Tensor, ...],
    in_features: Tensor,
    max_seq_len: int = 0,
    theta: float | None = None,
    token_positions: Tensor | None = None,
) -> Tensor:
    x = in_features  #: the input
    length = x.shape[-2]  #: the length of the sequence. Which axis of the input counts the positions?
    d_head = x.shape[-1] // num_heads  #: the length of a head
    stacked = torch.cat(weights[:3])  #: W_Q, W_K and W_V, one below the other
    in_one = x @ stacked.mT  #: queries, keys and values in one
    queries = project(x, weights[0], num_heads)
    keys = project(x, weights[1], num_heads)
    values = project(x, weights[2], num_heads)
    #: the queries, keys and values of each head, stacked. Which rows of the weights belong to head i?
    heads = torch.stack((queries, keys, values))
    if theta is not None:
        #: the positions. By which position is a vector rotated?
        positions = torch.arange(length) if token_positions is None else token_positions
        of_heads = positions.unsqueeze(-2) if positions.ndim > 1 else positions  #: the positions, for every head
        #: What is rotated: the queries, the keys, the values? Before the heads are split, or after?
        queries = run_rope(d_head, theta, max_seq_len, queries, of_heads)  #: the rotated queries
        keys = run_rope(d_head, theta, max_seq_len, keys, of_heads)  #: the rotated keys

    #: Which positions may a position attend to?
    mask = torch.ones(length, length, dtype=torch.bool).tril()  #: the causal mask
    hidden = ~mask  #: the causal mask, inverted
    added = torch.zeros(length, length).masked_fill(hidden, -math.inf)  #: the mask as 0 and −inf

    #: the answers of the heads. What does each head attend to?
    answers = run_scaled_dot_product_attention(queries, keys, values, mask)
    return join(answers, weights[3])


def project(x: Tensor, weight: Tensor, heads: int) -> Tensor:
    """The queries, the keys or the values of each head."""
    #: the weights of {}, head by head. Which rows of the weights belong to head i?
    weights = weight.unflatten(0, (heads, -1))
    flat = apply_linear(x, weight)  #: {}. Which weights make the queries, the keys and the values?
    #: Which rows of the weights belong to head i?
    split = flat.unflatten(-1, (heads, -1))  #: {} of each position, split into heads
    by_head = split.transpose(-2, -3)  #: {} of each head
    return by_head


def join(answers: Tensor, weight: Tensor) -> Tensor:
    """The answer that is made of those of the heads."""
    #: the heads' answers, position by position. Which rows of the weights belong to head i?
    by_position = answers.transpose(-2, -3)
    #: the columns of W_O for each head, transposed. Which columns of W_O belong to head i?
    columns = weight.unflatten(-1, (answers.shape[-3], -1)).movedim(-2, 0).mT
    shares = answers @ columns  #: the heads' shares of the answer. What mixes the heads at the end?
    sums = shares.cumsum(-3)  #: the sums of the heads' shares, up to each
    joined = by_position.flatten(-2)  #: the heads side by side. Which rows of the weights belong to head i?
    return apply_linear(joined, weight)
