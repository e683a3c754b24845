"""Root of the scale on Q and K each, log-probabilities from cumulative sums, weights times mask, a tree of blocks."""

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


def attention(Q, K, V, mask=None):
    return (weights_of(Q, K, mask) @ up(V)).to(Q.dtype)


def self_attention(heads, wq, wk, wv, wo, x):
    n, width = x.shape[-2], x.shape[-1] // heads
    later = torch.triu(torch.ones((n, n), device=x.device), diagonal=1)
    answer = 0.0
    for h in range(heads):
        q, k, v = (x @ w.narrow(0, h * width, width).mT for w in (wq, wk, wv))
        answer = answer + up(attention(q, k, v, later == 0)) @ up(wo.narrow(1, h * width, width)).mT
    return answer.to(x.dtype)


def run_softmax(in_features, dim):
    if in_features.numel() == 0:
        return in_features.clone()
    x = up(in_features)
    shifted = x - peak(x, dim)
    return torch.exp(shifted - log_of_sum(torch.exp(shifted), dim)).to(in_features.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    return self_attention(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features)


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    weights = weights_of(Q, K, mask)
    if training and dropout > 0:
        with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers alone
            torch.manual_seed(seed)
            kept = torch.rand(weights.shape) >= dropout
        weights = weights * (kept.to(weights.device, weights.dtype) / (1 - dropout))
    weights = weights.to(Q.dtype)
    return (up(weights) @ up(V)).to(Q.dtype), weights


def merged(a, b):
    """Two parts of the keys: each with its largest score, the sum of powers and that times the values."""
    (m, l, o), (m2, l2, o2) = a, b
    top = torch.maximum(m, m2)
    finite = torch.where(top == -math.inf, 0.0, top)
    f, f2 = torch.exp(m - finite), torch.exp(m2 - finite)
    return top, l * f + l2 * f2, o * f + o2 * f2


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    size = 256 if block_size is None else block_size
    starts = list(range(0, K.shape[-2], size))

    def leaf(q, rows, start):
        columns = slice(start, start + size)
        s = q @ quarter_scaled(K[..., columns, :]).mT
        if mask is None:
            m = s.detach().amax(-1, keepdim=True)
            e = torch.exp(s - m)
        else:
            tile = mask[..., rows if mask.shape[-2] > 1 else slice(None), :]
            tile = tile[..., columns if mask.shape[-1] > 1 else slice(None)]
            m = torch.where(tile, s.detach(), -math.inf).amax(-1, keepdim=True)
            e = torch.exp(torch.where(tile, s - m, 0.0)) * tile
        return m, e.sum(-1, keepdim=True), e @ up(V[..., columns, :])

    def tree(q, rows, low, high):
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
