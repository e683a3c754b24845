"""Multi-head attention between two sequences. Unused values are other right ways to write it."""

from typing import Any

import torch
from torch import Tensor

from problems.attention_module.reference import run_scaled_dot_product_attention_module
from problems.linear.reference import join, project


# B2 Attention between two sequences
def run_multihead_attention(
    num_heads: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, **rest: Any
) -> Tensor:
    weights = [rest[f"{letter}_proj_weight"] for letter in "qkvo"]
    heads = num_heads  #: the number of heads
    d_head = rest["d_model"] // num_heads  #: the length of a head. How are the rows of a weight shared by the heads?
    #: Which of the three sequences gives the queries, which the keys, and which the values?
    of_queries = query  #: the sequence of the queries
    of_keys = key  #: the sequence of the keys
    of_values = value  #: the sequence of the values

    queries = project(query, weights[0], num_heads)
    keys = project(key, weights[1], num_heads)
    values = project(value, weights[2], num_heads)
    if mask is None:
        #: True for every query and key. Which keys may a query attend to where no mask is given?
        every = torch.ones(queries.shape[-2], keys.shape[-2], dtype=torch.bool)
    else:
        given = mask  #: the mask, as passed in
        hidden = ~mask  #: the mask, as passed in, inverted
        mask = mask[..., None, :] if mask.ndim < query.ndim else mask
        #: Which axes does this mask have, and which does it need to line up with the scores of all heads?
        mask = (
            mask.unsqueeze(-3) if mask.ndim == query.ndim else mask
        )  #: the mask, lined up with the scores of all heads
        hidden_in_line = ~mask  #: the mask, lined up with the scores of all heads, inverted
        whole = mask.expand(*queries.shape[:-1], keys.shape[-2])  #: the mask of every head
        hidden_in_whole = ~whole  #: the mask of every head, inverted
    answers, _ = run_scaled_dot_product_attention_module(queries, keys, values, mask, 0.0, False, 0)
    of_heads = answers  #: the answers of the heads. What does each head attend to?
    return join(of_heads, weights[3])  #: the answer. What mixes the heads at the end?
