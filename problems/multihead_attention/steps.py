"""Multi-head attention between two sequences in steps."""

import torch
from torch import Tensor

from problems.multihead_self_attention.steps import attend, join, project
from whichline.way.steps import Steps

FROM = "Which of the three sequences gives the queries, which the keys, and which the values?"
KIND = "Which axes does this mask have, and which does it need to line up with the scores of all heads?"


def follow_multihead_of_two(
    step: Steps,
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    step.section = "B2 Attention between two sequences"
    step("the number of heads", float(num_heads))
    step("the length of a head", float(d_model // num_heads), "How are the rows of a weight shared by the heads?")
    heads = []
    for name, x, weight in (
        ("queries", query, q_proj_weight),
        ("keys", key, k_proj_weight),
        ("values", value, v_proj_weight),
    ):
        step(f"the sequence of the {name}", x, FROM)
        heads.append(project(step, name, x, weight, num_heads))
    q, k, v = heads
    if mask is None:
        every = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
        step("True for every query and key", every, "Which keys may a query attend to where no mask is given?")
    else:
        step("the mask, as passed in", mask)
        step("the mask, as passed in, inverted", ~mask)
        if mask.ndim < query.ndim:
            mask = mask[..., None, :]
        if mask.ndim == query.ndim:
            mask = mask.unsqueeze(-3)
        step("the mask, lined up with the scores of all heads", mask, KIND)
        step("the mask, lined up with the scores of all heads, inverted", ~mask, KIND)
        whole = mask.expand(*q.shape[:-1], k.shape[-2])
        step("the mask of every head", whole, KIND)
        step("the mask of every head, inverted", ~whole, KIND)
    return join(step, attend(step, q, k, v, mask, ("the mask", "the mask, inverted")), o_proj_weight)
