"""Decoding in steps: one call, behind a cache or without one."""

import torch
from torch import Tensor

from problems.multihead_self_attention.steps import OF_MASK, TURN, attend, join, project, turn
from whichline.way.steps import Steps

BEHIND = "At which position is the first new token, given how many tokens the cache holds?"
SEES = "Which keys may each new token attend to, those of the cache first?"
WINDOW = "How many tokens lie within the window, and is the token itself one of them?"
CACHE = "Which rows does the cache have after the call, in which order, and how many times is each key rotated?"
GROUP = "Which head of keys and values does query head i use?"


def follow_decoding(
    step: Steps,
    d_model: int,
    num_heads: int,
    num_kv_heads: int,
    window: int | None,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    keys: Tensor | None = None,
    values: Tensor | None = None,
) -> Tensor:
    step.section = "B4 Decoding"
    x, d_head, group = step("the new tokens", in_features), d_model // num_heads, num_heads // num_kv_heads
    new, past = x.shape[-2], 0 if keys is None else keys.shape[-2]
    for name, number in (("in the cache", past), ("that are new", new), ("with the new ones", past + new)):
        step(f"the number of tokens {name}", float(number), BEHIND)
    step("the number of heads in a group", float(group), GROUP)
    for name, cached in (("keys", keys), ("values", values)):
        if cached is not None:
            step(f"the {name} that were in the cache", cached, CACHE)
    q = project(step, "queries", x, q_proj_weight, num_heads)
    k = project(step, "keys", x, k_proj_weight, num_kv_heads)
    v = project(step, "values", x, v_proj_weight, num_kv_heads)
    positions = step("the positions of the new tokens", torch.arange(past, past + new), BEHIND)
    q = step("the rotated queries", turn(step, "queries", d_head, theta, max_seq_len, q, positions), TURN)
    k = step("the rotated keys", turn(step, "keys", d_head, theta, max_seq_len, k, positions), TURN)
    for name, turned in (("queries", q), ("keys", k)):
        step(f"the rotated {name} of each position, side by side", turned.transpose(-2, -3).flatten(-2), TURN)
    k = step("the cached keys", k if keys is None else torch.cat((keys, k), -2), CACHE)
    v = step("the cached values", v if values is None else torch.cat((values, v), -2), CACHE)
    mask = follow_mask(step, positions, past + new, window)
    lent_k = step("the keys that each head uses", k.repeat_interleave(group, -3), GROUP)
    lent_v = step("the values that each head uses", v.repeat_interleave(group, -3), GROUP)
    grouped = step("the queries of each head, in groups", q.unflatten(-3, (num_kv_heads, group)), GROUP)
    answers = attend(step, q, lent_k, lent_v, mask, OF_MASK)
    attend(step, grouped, k.unsqueeze(-3), v.unsqueeze(-3), mask, OF_MASK, ", in groups")
    by_position = answers.unflatten(-3, (num_kv_heads, group)).movedim(-2, -4)
    step("the heads' answers, position by position, in groups", by_position, GROUP)
    return join(step, answers, o_proj_weight)


def follow_mask(step: Steps, positions: Tensor, total: int, window: int | None) -> Tensor:
    """The keys that each new token sees."""
    every = step("the positions of all keys", torch.arange(total), SEES)
    behind = step("each key's distance behind each new token", positions[:, None] - every, SEES)
    step("each key's distance ahead of each new token", -behind, SEES)
    step("the mask of keys that lie ahead", behind < 0, SEES)
    mask = step("the mask of keys that do not lie ahead", behind >= 0, SEES)
    if window is not None:
        step("the window", float(window), WINDOW)
        step("the first position that each new token sees, −1", positions - window, WINDOW)
        step("the first position that each new token sees", positions - window + 1, WINDOW)
        step("the mask of keys too far back", behind >= window, WINDOW)
        mask = mask & step("the mask of keys not too far back", behind < window, WINDOW)
    step("the mask", mask, SEES)
    step("the mask, inverted", ~mask, SEES)
    step("the mask as 0 and −inf", torch.zeros(mask.shape).double().masked_fill(~mask, -torch.inf), SEES)
    return mask
