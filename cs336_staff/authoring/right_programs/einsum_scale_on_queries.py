"""einops einsums, queries scaled first, masked_fill with -inf, division before V, RoPE from a cached float32 table."""

import math
from functools import lru_cache

import torch
from einops import einsum, rearrange, repeat
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def softmax(x: Tensor, dim: int) -> Tensor:
    logits = widen(x)
    if logits.numel() == 0:
        return x.clone()
    m = logits.amax(dim=dim, keepdim=True)
    m = m.masked_fill(m == -math.inf, 0.0)
    e = torch.exp(logits - m)
    total = e.sum(dim=dim, keepdim=True)
    total = total.masked_fill(total == 0, 1.0)
    return (e / total).to(x.dtype)


def scores_of(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    scaled = widen(Q) / math.sqrt(max(1, Q.shape[-1]))
    scores = einsum(scaled, widen(K), "... queries d_k, ... keys d_k -> ... queries keys")
    if mask is not None:
        shape = torch.broadcast_shapes(scores.shape, mask.shape)
        scores = scores.expand(shape).masked_fill(~mask, -math.inf)
    return scores


def attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    weights = softmax(scores_of(Q, K, mask), -1)
    return einsum(weights, widen(V), "... queries keys, ... keys d_v -> ... queries d_v").to(Q.dtype)


@lru_cache(maxsize=8)
def tables(d_k: int, theta: float, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    frequencies = theta ** (-torch.arange(0, d_k, 2, dtype=torch.float32, device=device) / d_k)
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device=device), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, theta: float, max_seq_len: int, positions: Tensor) -> Tensor:
    cos, sin = tables(x.shape[-1], float(theta), max_seq_len, x.device)
    cos, sin = cos[positions.long()], sin[positions.long()]
    even, odd = rearrange(widen(x), "... (pair two) -> two ... pair", two=2)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return rearrange(turned, "... pair two -> ... (pair two)").to(x.dtype)


def self_attention(num_heads, wq, wk, wv, wo, x, turn=None):
    qkv = einsum(torch.stack((wq, wk, wv)), x, "three out d, ... sequence d -> three ... sequence out")
    q, k, v = rearrange(qkv, "three ... s (h d) -> three ... h s d", h=num_heads)
    if turn is not None:
        q, k = turn(q), turn(k)
    n = x.shape[-2]
    causal = torch.tril(torch.ones(n, n, dtype=torch.bool, device=x.device))
    heads = rearrange(attend(q, k, v, causal), "... h s d -> ... s (h d)")
    return einsum(wo, heads, "out d, ... d -> ... out")


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return attend(Q, K, V, mask)


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return einsum(weights, in_features, "d_out d_in, ... d_in -> ... d_out")


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return rotate(in_query_or_key, theta, max_seq_len, token_positions)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    return self_attention(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features)


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
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    positions = rearrange(token_positions, "... s -> ... 1 s")
    return self_attention(
        num_heads,
        q_proj_weight,
        k_proj_weight,
        v_proj_weight,
        o_proj_weight,
        in_features,
        lambda heads: rotate(heads, theta, max_seq_len, positions),
    )


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    weights = softmax(scores_of(Q, K, mask), -1)
    if training and dropout > 0:
        dropped = torch.rand(weights.shape, device=weights.device) < dropout
        weights = weights.masked_fill(dropped, 0.0) / (1 - dropout)
    output = einsum(weights, widen(V), "... queries keys, ... keys d_v -> ... queries d_v")
    return output.to(Q.dtype), weights.to(Q.dtype)


def run_multihead_attention(
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
    q, k, v = (
        einsum(rearrange(w, "(h e) d -> h e d", h=num_heads), x, "h e d, ... s d -> ... h s e")
        for w, x in ((q_proj_weight, query), (k_proj_weight, key), (v_proj_weight, value))
    )
    if mask is not None:
        if mask.ndim == query.ndim - 1:
            mask = rearrange(mask, "... keys -> ... 1 1 keys")
        elif mask.ndim == query.ndim:
            mask = rearrange(mask, "... queries keys -> ... 1 queries keys")
    heads = attend(q, k, v, mask)
    return einsum(rearrange(o_proj_weight, "o (h e) -> o h e", h=num_heads), heads, "o h e, ... h s e -> ... s o")


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    size = block_size or 256
    batch = torch.broadcast_shapes(
        Q.shape[:-2], K.shape[:-2], V.shape[:-2], () if mask is None else mask.shape[:-2]
    )
    done = []
    for i in range(0, Q.shape[-2], size):
        q = Q[..., i : i + size, :]
        rows = q.shape[-2]
        q = widen(q)
        m = torch.full((*batch, rows, 1), -math.inf, dtype=q.dtype, device=q.device)
        l = torch.zeros_like(m)
        o = repeat(l, "... 1 -> ... d_v", d_v=V.shape[-1])
        for j in range(0, K.shape[-2], size):
            tile = None
            if mask is not None:
                tile = mask if mask.shape[-2] == 1 else mask[..., i : i + size, :]
                tile = tile if mask.shape[-1] == 1 else tile[..., j : j + size]
            s = scores_of(q, K[..., j : j + size, :], tile)
            new = torch.maximum(m, s.detach().amax(-1, keepdim=True))
            reference = new.masked_fill(new == -math.inf, 0.0)
            shrink = torch.exp(m - reference)
            p = torch.exp(s - reference)
            l = shrink * l + p.sum(-1, keepdim=True)
            pv = einsum(p, widen(V[..., j : j + size, :]), "... queries keys, ... keys d_v -> ... queries d_v")
            o = shrink * o + pv
            m = new
        done.append((o / l.masked_fill(l == 0, 1.0)).to(Q.dtype))
    if not done:
        return Q.new_zeros((*batch, 0, V.shape[-1]))
    return torch.cat(done, dim=-2)
