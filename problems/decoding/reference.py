"""Decoding: one call, with a cache or without. Unused values are other right ways to write it."""

import torch
from torch import Tensor

from problems.linear.reference import join, project
from problems.rope.reference import run_rope
from problems.scaled_dot_product_attention.reference import run_scaled_dot_product_attention


# B4 Decoding
def run_decoding(num_heads: int, num_kv_heads: int, in_features: Tensor, **given) -> tuple[Tensor, ...]:
    window, old_keys, old_values = given["window"], given.get("keys"), given.get("values")
    d_head, theta, most = given["d_model"] // num_heads, given["theta"], given["max_seq_len"]
    x = in_features  #: the new tokens
    #: At which position is the first new token, given how many tokens the cache holds?
    past = 0 if old_keys is None else old_keys.shape[-2]  #: the number of tokens in the cache
    new = x.shape[-2]  #: the number of tokens that are new
    count = past + new  #: the number of tokens with the new ones
    positions = torch.arange(past, count)  #: the positions of the new tokens
    #: the number of heads in a group. Which head of keys and values does query head i use?
    group = num_heads // num_kv_heads

    queries = project(x, given["q_proj_weight"], num_heads)
    keys = project(x, given["k_proj_weight"], num_kv_heads)
    values = project(x, given["v_proj_weight"], num_kv_heads)
    #: What is rotated: the queries, the keys, the values? Before the heads are split, or after?
    queries = run_rope(d_head, theta, most, queries, positions)  #: the rotated queries
    keys = run_rope(d_head, theta, most, keys, positions)  #: the rotated keys
    flat_queries = queries.transpose(-2, -3).flatten(-2)  #: the rotated queries of each position, side by side
    flat_keys = keys.transpose(-2, -3).flatten(-2)  #: the rotated keys of each position, side by side
    #: Which rows does the cache have after the call, in which order, and how many times is each key rotated?
    keys_before = old_keys  #: the keys that were in the cache
    values_before = old_values  #: the values that were in the cache
    keys = keys if old_keys is None else torch.cat((old_keys, keys), -2)  #: the cached keys
    values = values if old_values is None else torch.cat((old_values, values), -2)  #: the cached values
    #: Which keys may each new token attend to, those of the cache first?
    every = torch.arange(count)  #: the positions of all keys
    behind = positions[:, None] - every  #: each key's distance behind each new token
    not_ahead = behind >= 0  #: the mask of keys that do not lie ahead
    near = behind < (window or count)  #: the mask of keys not too far back. How many tokens lie within the window?
    if window is not None:
        #: How many tokens lie within the window, and is the token itself one of them?
        width = window  #: the window
        last_hidden = positions - window  #: the first position that each new token sees, −1
        first_seen = positions - window + 1  #: the first position that each new token sees
    #: Which keys may each new token attend to, those of the cache first?
    mask = not_ahead & near  #: the mask
    hidden = ~mask  #: the mask, inverted
    added = torch.zeros(mask.shape).masked_fill(hidden, -torch.inf)  #: the mask as 0 and −inf
    #: Which head of keys and values does query head i use?
    K = keys.repeat_interleave(group, -3)  #: the keys that each head uses
    V = values.repeat_interleave(group, -3)  #: the values that each head uses
    grouped = queries.unflatten(-3, (num_kv_heads, group))  #: the queries of each head, in groups
    #: What does each head attend to?
    answers = run_scaled_dot_product_attention(queries, K, V, mask)  #: the answers of the heads
    run_scaled_dot_product_attention(grouped, keys.unsqueeze(-3), values.unsqueeze(-3), mask)  #: , in groups
    grouped_answers = answers.unflatten(-3, (num_kv_heads, group))  #: the answers of the heads, in groups
    return join(answers, given["o_proj_weight"]), keys, values  #: the answer. What mixes the heads at the end?
