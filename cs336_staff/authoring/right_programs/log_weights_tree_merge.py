"""Root of the scale on Q and K each, log-probabilities from cumulative sums, weights times mask, 2x2 matrices, a tree of blocks."""

import math

import torch
from torch import Tensor


def up(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def last_sum(x: Tensor, dim: int) -> Tensor:
    """The sum along `dim`, as the last of its cumulative sums."""
    sums = x.cumsum(dim)
    return sums.narrow(dim, sums.shape[dim] - 1, 1) if sums.ndim else sums


def log_of_sum(x: Tensor, dim: int) -> Tensor:
    total = last_sum(x, dim)
    return torch.log(total + (total == 0).to(total.dtype))


def peak(x: Tensor, dim: int, mask: Tensor | None = None) -> Tensor:
    """The largest along `dim` of what the mask shows; 0 where it shows nothing."""
    x = x.detach()
    if mask is not None:
        x = torch.where(mask, x, -math.inf)
    m = x.amax(dim, keepdim=True)
    return torch.where(m == -math.inf, 0.0, m)


def quarter_scaled(x: Tensor) -> Tensor:
    return up(x) * max(1, x.shape[-1]) ** -0.25


def weights_of(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    s = quarter_scaled(Q) @ quarter_scaled(K).mT
    if s.numel() == 0:
        return s if mask is None else s.expand(torch.broadcast_shapes(s.shape, mask.shape))
    shown = torch.ones_like(s) if mask is None else mask.to(s.dtype)
    s = s - peak(s, -1, mask)
    s = s if mask is None else torch.where(mask, s, 0.0)  # a hidden score may be huge, and inf * 0 is nan
    log_total = log_of_sum(torch.exp(s) * shown, -1)
    return torch.exp(s - log_total) * shown


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return (weights_of(Q, K, mask) @ up(V)).to(Q.dtype)


def rotations(d: int, theta: float, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """(..., sequence, pairs, 2, 2): the rotation of each pair at each position; angles in float64."""
    pairs = torch.arange(d // 2, dtype=torch.float64, device=positions.device)
    angles = positions.to(torch.float64)[..., None] * torch.exp(pairs * (-2 * math.log(theta) / d))
    cos, sin = torch.cos(angles), torch.sin(angles)
    first, second = torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)
    return torch.stack((first, second), -2).to(dtype)


def rope(x: Tensor, theta: float, positions: Tensor) -> Tensor:
    wide = up(x)
    R = rotations(x.shape[-1], theta, positions, wide.dtype)
    columns = wide.unflatten(-1, (-1, 2)).unsqueeze(-1)
    return (R @ columns).flatten(-3).to(x.dtype)


def self_attention(heads, wq, wk, wv, wo, x, positions=None, theta=0.0):
    n, width = x.shape[-2], x.shape[-1] // heads
    later = torch.triu(torch.ones((n, n), device=x.device), diagonal=1)
    answer = 0.0
    for h in range(heads):
        q, k, v = (x @ w.narrow(0, h * width, width).mT for w in (wq, wk, wv))
        if positions is not None:
            q, k = rope(q, theta, positions), rope(k, theta, positions)
        answer = answer + up(attention(q, k, v, later == 0)) @ up(wo.narrow(1, h * width, width)).mT
    return answer.to(x.dtype)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    if in_features.numel() == 0:
        return in_features.clone()
    x = up(in_features)
    shifted = x - peak(x, dim)
    return torch.exp(shifted - log_of_sum(torch.exp(shifted), dim)).to(in_features.dtype)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return attention(Q, K, V, mask)


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return (in_features.unsqueeze(-2) * weights).sum(-1)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return rope(in_query_or_key, theta, token_positions)


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
        token_positions = torch.ones(in_features.shape[-2], dtype=torch.int64, device=in_features.device).cumsum(0) - 1
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return self_attention(num_heads, *weights, in_features, token_positions, theta)


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    weights = weights_of(Q, K, mask)
    if training and dropout > 0:
        with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers alone
            torch.manual_seed(seed)
            kept = torch.rand(weights.shape) >= dropout
        weights = weights * (kept.to(weights.device, weights.dtype) / (1 - dropout))
    weights = weights.to(Q.dtype)
    return (up(weights) @ up(V)).to(Q.dtype), weights


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
    width = d_model // num_heads
    if mask is None:
        by_head = [None] * num_heads
    elif mask.ndim == query.ndim + 1:
        by_head = list(mask.expand(*mask.shape[:-3], num_heads, -1, -1).unbind(-3))
    else:
        by_head = [mask if mask.ndim == query.ndim else mask.unsqueeze(-2)] * num_heads
    outputs = []
    for h, shown in enumerate(by_head):
        wq, wk, wv = (w[h * width : (h + 1) * width] for w in (q_proj_weight, k_proj_weight, v_proj_weight))
        o = attention(query @ wq.mT, key @ wk.mT, value @ wv.mT, shown)
        outputs.append(up(o) @ up(o_proj_weight[:, h * width : (h + 1) * width]).mT)
    return torch.stack(outputs).sum(0).to(query.dtype)


def merged(a, b):
    """Two parts of the keys: each with its largest score, the sum of powers and that times the values."""
    (m, l, o), (m2, l2, o2) = a, b
    top = torch.maximum(m, m2)
    finite = torch.where(top == -math.inf, 0.0, top)
    f, f2 = torch.exp(m - finite), torch.exp(m2 - finite)
    return top, l * f + l2 * f2, o * f + o2 * f2


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    size = 256 if block_size is None else block_size
    starts = list(range(0, K.shape[-2], size))

    def leaf(q: Tensor, rows: slice, start: int):
        columns = slice(start, start + size)
        s = q @ quarter_scaled(K[..., columns, :]).mT
        if mask is None:
            m = s.detach().amax(-1, keepdim=True)
            e = torch.exp(s - m)
        else:
            tile = mask[..., rows if mask.shape[-2] > 1 else slice(None), columns if mask.shape[-1] > 1 else slice(None)]
            m = torch.where(tile, s.detach(), -math.inf).amax(-1, keepdim=True)
            e = torch.exp(torch.where(tile, s - m, 0.0)) * tile
        return m, e.sum(-1, keepdim=True), e @ up(V[..., columns, :])

    def tree(q: Tensor, rows: slice, low: int, high: int):
        if high - low == 1:
            return leaf(q, rows, starts[low])
        middle = (low + high) // 2
        return merged(tree(q, rows, low, middle), tree(q, rows, middle, high))

    if not starts or not Q.shape[-2]:
        return attention(Q, K, V, mask)
    answers = []
    for i in range(0, Q.shape[-2], size):
        rows = slice(i, i + size)
        _, l, o = tree(quarter_scaled(Q[..., rows, :]), rows, 0, len(starts))
        answers.append((o / (l + (l == 0))).to(Q.dtype))
    return torch.cat(answers, -2)
