"""Causal multi-head self-attention. Unused values are other right ways to write it."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from problems.linear.reference import join, project
from problems.rope.reference import run_rope
from problems.scaled_dot_product_attention.reference import run_scaled_dot_product_attention


# 6 Multi-head self-attention
def run_multihead_self_attention(num_heads: int, in_features: Tensor, **weights: Any) -> Tensor:
    return attend(num_heads, in_features, weights)  #: the answer. What mixes the heads at the end?


def run_multihead_self_attention_with_rope(num_heads: int, in_features: Tensor, **given: Any) -> Tensor:
    return attend(num_heads, in_features, given)  #: the answer. What mixes the heads at the end?


def attend(num_heads: int, in_features: Tensor, given: Mapping[str, Any]) -> Tensor:
    weights = [given[f"{letter}_proj_weight"] for letter in "qkvo"]
    x = in_features  #: the input
    length = x.shape[-2]  #: the length of the sequence. Which axis of the input counts the positions?
    d_head = x.shape[-1] // num_heads  #: the length of a head
    stacked = torch.cat(weights[:3])  #: W_Q, W_K and W_V, one below the other
    #: the weights of the queries, keys and values of each head, stacked. Which rows of the weights belong to head i?
    by_heads = stacked.unflatten(0, (3, num_heads, d_head))
    in_one = x @ stacked.mT  #: queries, keys and values in one
    queries = project(x, weights[0], num_heads)
    keys = project(x, weights[1], num_heads)
    values = project(x, weights[2], num_heads)
    #: the queries, keys and values of each head, stacked. Which rows of the weights belong to head i?
    heads = torch.stack((queries, keys, values))
    if "theta" in given:
        theta, most, given_positions = given["theta"], given["max_seq_len"], given.get("token_positions")
        #: the positions. By which position is a vector rotated?
        positions = torch.arange(length) if given_positions is None else given_positions
        of_heads = positions.unsqueeze(-2) if positions.ndim > 1 else positions  #: the positions, for every head
        #: What is rotated: the queries, the keys, the values? Before the heads are split, or after?
        queries = run_rope(d_head, theta, most, queries, of_heads)  #: the rotated queries
        keys = run_rope(d_head, theta, most, keys, of_heads)  #: the rotated keys

    #: Which positions may a position attend to?
    mask = torch.ones(length, length, dtype=torch.bool).tril()  #: the causal mask
    hidden = ~mask  #: the causal mask, inverted
    added = torch.zeros(length, length).masked_fill(hidden, -math.inf)  #: the mask as 0 and −inf

    #: the answers of the heads. What does each head attend to?
    answers = run_scaled_dot_product_attention(queries, keys, values, mask)
    return join(answers, weights[3])
