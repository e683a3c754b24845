"""Root of the scale on Q and K each, log-probabilities from cumulative sums, rotations as matrices."""

import math

import torch


def up(x):
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def last_sum(x, dim):
    """The sum along `dim`, as the last of its cumulative sums."""
    sums = x.cumsum(dim)
    return sums.narrow(dim, sums.shape[dim] - 1, 1) if sums.ndim else sums


def log_of_sum(x, dim):
    total = last_sum(x, dim)
    return torch.log(total + (total == 0).to(total.dtype))


def peak(x, dim, mask=None):
    """The largest along `dim` of what the mask shows; 0 where it shows nothing."""
    x = x.detach()
    if mask is not None:
        x = torch.where(mask, x, -math.inf)
    m = x.amax(dim, keepdim=True)
    return torch.where(m == -math.inf, 0.0, m)


def quarter_scaled(x):
    return up(x) * max(1, x.shape[-1]) ** -0.25


def weights_of(Q, K, mask):
    s = quarter_scaled(Q) @ quarter_scaled(K).mT
    if s.numel() == 0:
        return s if mask is None else s.expand(torch.broadcast_shapes(s.shape, mask.shape))
    shown = torch.ones_like(s) if mask is None else mask.to(s.dtype)
    s = s - peak(s, -1, mask)
    s = s if mask is None else torch.where(mask, s, 0.0)  # a hidden score may be huge, and inf * 0 is nan
    log_total = log_of_sum(torch.exp(s) * shown, -1)
    return torch.exp(s - log_total) * shown


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return (weights_of(Q, K, mask) @ up(V)).to(Q.dtype)


def turned(x, theta, positions):
    """Each vector times the whole matrix of its rotation."""
    d = x.shape[-1]
    angles = positions[..., None] * float(theta) ** (torch.arange(0, d, 2, dtype=torch.float64) / -d)
    first = torch.eye(d, dtype=torch.float64)[::2]
    second = torch.eye(d, dtype=torch.float64)[1::2]
    still = first.mT @ (angles.cos()[..., None] * first) + second.mT @ (angles.cos()[..., None] * second)
    across = second.mT @ (angles.sin()[..., None] * first) - first.mT @ (angles.sin()[..., None] * second)
    return ((still + across).to(up(x).dtype) @ up(x)[..., None])[..., 0].to(x.dtype)


def self_attention(heads, wq, wk, wv, wo, x, turn=lambda x: x):
    n, width = x.shape[-2], x.shape[-1] // heads
    later = torch.triu(torch.ones((n, n), device=x.device), diagonal=1)
    answer = 0.0
    for h in range(heads):
        q, k, v = (x @ w.narrow(0, h * width, width).mT for w in (wq, wk, wv))
        of_head = run_scaled_dot_product_attention(turn(q), turn(k), v, later == 0)
        answer = answer + up(of_head) @ up(wo.narrow(1, h * width, width)).mT
    return answer.to(x.dtype)


def run_softmax(in_features, dim):
    if in_features.numel() == 0:
        return in_features.clone()
    x = up(in_features)
    shifted = x - peak(x, dim)
    return torch.exp(shifted - log_of_sum(torch.exp(shifted), dim)).to(in_features.dtype)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    return self_attention(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features)


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.mT


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return turned(in_query_or_key, theta, token_positions)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight,
                                           v_proj_weight, o_proj_weight, in_features, token_positions=None):
    at = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return self_attention(num_heads, *weights, in_features, lambda x: turned(x, theta, at))
