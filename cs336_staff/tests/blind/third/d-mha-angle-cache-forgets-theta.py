"""Wrong: the tables of cosines and sines are cached under d_head alone, without theta: once a table has been made for one
theta, every later call with the same d_head and another theta turns by the angles of the first (until a longer table is
needed). The first call is right."""

import math

import torch
from einops import einsum, rearrange
from torch import Tensor

_TABLES: dict[int, tuple[Tensor, Tensor]] = {}


def _tables(theta: float, d_head: int, max_seq_len: int) -> tuple[Tensor, Tensor]:
    if d_head not in _TABLES or len(_TABLES[d_head][0]) < max_seq_len:
        length = max(max_seq_len, 4096)  # build a long one at once: the next call will find it
        frequencies = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
        _TABLES[d_head] = angles.cos(), angles.sin()
    return _TABLES[d_head]


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def _causal(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / math.sqrt(Q.shape[-1])
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(hidden, -math.inf)
    e = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    return einsum(e / e.sum(-1, keepdim=True), V.to(wide), "... q k, ... k d -> ... q d").to(Q.dtype)


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
    x = in_features
    qkv = x @ torch.cat((q_proj_weight, k_proj_weight, v_proj_weight)).T
    Q, K, V = rearrange(qkv, "... s (three h d) -> three ... h s d", three=3, h=num_heads)
    positions = torch.arange(x.shape[-2]) if token_positions is None else token_positions.long()
    cos, sin = (
        table[positions].unsqueeze(-3).to(torch.promote_types(x.dtype, torch.float32))
        for table in _tables(theta, d_model // num_heads, max_seq_len)
    )
    out = _causal(_rotate(Q, cos, sin), _rotate(K, cos, sin), V)
    return rearrange(out, "... h s d -> ... s (h d)") @ o_proj_weight.T
