"""Plain Python loops over matrices and queries, allowed keys gathered by index, pairwise sums, RoPE with math.cos."""

import itertools
import math

import torch

HALF = (torch.float16, torch.bfloat16)


def wide(x):
    return x.float() if x.dtype in HALF else x


def pairwise_sum(x):
    """The sum along dimension 0, as a tree of additions."""
    if len(x) == 0:
        return x.sum(0)
    while len(x) > 1:
        half = len(x) // 2
        added = x[:half] + x[half : 2 * half]
        x = torch.cat([added, x[2 * half :]]) if len(x) % 2 else added
    return x[0]


def probabilities(logits):
    """Softmax along dimension 0; the biggest logit of each slice is taken off first."""
    if logits.numel() == 0:
        return logits
    biggest = logits.max(dim=0).values
    biggest = torch.where(torch.isneginf(biggest), 0.0, biggest)
    powers = (logits - biggest).exp()
    total = pairwise_sum(powers)
    return powers * (1.0 / torch.where(total == 0, 1.0, total))


def one_query(q, K, allowed):
    """The weights of one query on the keys `allowed`."""
    root = math.sqrt(max(1, len(q)))
    scores = pairwise_sum((K[allowed] * q).T) if len(q) else K[allowed].sum(-1)
    return probabilities(scores / root)


def each_query(Q, K, mask):
    """Batch-like index, row number, indices of the allowed keys, and weights on these, query by query."""
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, mask) if x is not None))
    n, keys = Q.shape[-2], K.shape[-2]
    Q, K = Q.expand(*batch, -1, -1), K.expand(*batch, -1, -1)
    if mask is not None:
        mask = mask.expand(*batch, n, keys)
    everything = torch.arange(keys, device=Q.device)
    for index in itertools.product(*map(range, batch)):
        for i in range(n):
            allowed = everything if mask is None else mask[index][i].nonzero()[:, 0]
            yield index, i, allowed, one_query(wide(Q[index][i]), wide(K[index]), allowed)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    Q, V = Q.expand(*batch, -1, -1), V.expand(*batch, -1, -1)
    rows = []
    for index, _, allowed, weights in each_query(Q, K, mask):
        rows.append(pairwise_sum(weights[:, None] * wide(V[index])[allowed]))
    shape = (*batch, Q.shape[-2], V.shape[-1])
    return torch.stack(rows).reshape(shape).to(Q.dtype) if rows else Q.new_zeros(shape)


def weight_matrix(Q, K, mask):
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, mask) if x is not None))
    shape = (*batch, Q.shape[-2], K.shape[-2])
    rows = [
        torch.zeros(K.shape[-2], dtype=weights.dtype, device=Q.device).index_put((allowed,), weights)
        for _, _, allowed, weights in each_query(Q, K, mask)
    ]
    return torch.stack(rows).reshape(shape) if rows else wide(Q).new_zeros(shape)


def apply_matrix(W, x):
    """W x, one output feature after the other."""
    return torch.stack([(wide(x) * wide(row)).sum(-1) for row in W.unbind(0)], dim=-1).to(x.dtype)


def rope(x, theta, positions):
    d = x.shape[-1]
    turned = []
    numbers = positions.flatten().tolist()
    for i in range(d // 2):
        frequency = float(theta) ** (-2 * i / d)
        cos = torch.tensor([math.cos(p * frequency) for p in numbers], dtype=wide(x).dtype, device=x.device)
        sin = torch.tensor([math.sin(p * frequency) for p in numbers], dtype=wide(x).dtype, device=x.device)
        cos, sin = cos.reshape(positions.shape), sin.reshape(positions.shape)
        a, b = wide(x[..., 2 * i]), wide(x[..., 2 * i + 1])
        turned += [a * cos - b * sin, a * sin + b * cos]
    return torch.stack(turned, dim=-1).to(x.dtype)


def causal_attention(num_heads, wq, wk, wv, wo, x, turn):
    size = x.shape[-1] // num_heads
    n = x.shape[-2]
    mask = torch.tensor([[j <= i for j in range(n)] for i in range(n)], dtype=torch.bool, device=x.device)
    q, k, v = (apply_matrix(w, x) for w in (wq, wk, wv))
    heads = []
    for h in range(num_heads):
        mine = slice(h * size, (h + 1) * size)
        heads.append(run_scaled_dot_product_attention(turn(q[..., mine]), turn(k[..., mine]), v[..., mine], mask))
    return apply_matrix(wo, torch.cat(heads, dim=-1))


def run_softmax(in_features, dim):
    if in_features.ndim == 0:
        return run_softmax(in_features[None], 0)[0]
    return probabilities(wide(in_features).transpose(0, dim)).transpose(0, dim).to(in_features.dtype)


def run_linear(d_in, d_out, weights, in_features):
    return apply_matrix(weights, in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rope(in_query_or_key, theta, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return causal_attention(num_heads, *weights, in_features, lambda x: x)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight,
                                           v_proj_weight, o_proj_weight, in_features, token_positions=None):
    if token_positions is None:
        token_positions = torch.tensor(list(range(in_features.shape[-2])), device=in_features.device)
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return causal_attention(num_heads, *weights, in_features, lambda x: rope(x, theta, token_positions))


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    weights = weight_matrix(Q, K, mask)
    if training and dropout:
        dice = torch.Generator(device=Q.device).manual_seed(seed)
        kept = torch.rand(weights.shape, generator=dice, device=Q.device) >= dropout
        weights = torch.where(kept, weights * (1 / (1 - dropout)), torch.zeros_like(weights))
    values = wide(V)
    output = sum(
        (weights[..., j, None] * values[..., j, None, :] for j in range(V.shape[-2])),
        start=torch.zeros((), dtype=weights.dtype, device=Q.device),
    )
    if V.shape[-2] == 0:
        output = weights @ values
    return output.to(Q.dtype), weights.to(Q.dtype)


def run_multihead_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key,
                            value, mask=None):
    size = d_model // num_heads
    heads = []
    for h in range(num_heads):
        rows = range(h * size, (h + 1) * size)
        q = apply_matrix(q_proj_weight[list(rows)], query)
        k = apply_matrix(k_proj_weight[list(rows)], key)
        v = apply_matrix(v_proj_weight[list(rows)], value)
        of_head = mask
        if mask is not None and mask.ndim == query.ndim - 1:
            of_head = mask[..., None, :]
        if mask is not None and mask.ndim == query.ndim + 1:
            of_head = mask[..., h if mask.shape[-3] > 1 else 0, :, :]
        heads.append(run_scaled_dot_product_attention(q, k, v, of_head))
    return apply_matrix(o_proj_weight, torch.cat(heads, dim=-1))


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    """Carries the average of the values so far, and how much it weighs."""
    size = block_size or 200
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
    n, keys = Q.shape[-2], K.shape[-2]
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], n, keys)  # a view
    parts = []
    for first in range(0, n, size):
        q = wide(Q[..., first : first + size, :])
        count = q.shape[-2]
        largest = torch.full((*batch, count, 1), -math.inf, dtype=q.dtype, device=q.device)
        weight = torch.zeros((*batch, count, 1), dtype=q.dtype, device=q.device)
        average = torch.zeros((*batch, count, V.shape[-1]), dtype=q.dtype, device=q.device)
        for start in range(0, keys, size):
            k, v = wide(K[..., start : start + size, :]), wide(V[..., start : start + size, :])
            scores = (q @ k.mT) / math.sqrt(max(1, q.shape[-1]))
            if mask is not None:
                tile = mask[..., first : first + size, start : start + size]
                scores = torch.where(tile, scores, -math.inf)
            with torch.no_grad():
                before = largest
                largest = torch.maximum(before, scores.max(dim=-1, keepdim=True).values)
                finite = torch.where(torch.isneginf(largest), 0.0, largest)
                factor = (before - finite).exp()
            powers = (scores - finite).exp()
            old, new = weight * factor, powers.sum(-1, keepdim=True)
            weight = old + new
            divisor = torch.where(weight == 0, 1.0, weight)
            average = average * (old / divisor) + (powers / divisor) @ v
        parts.append(average.to(Q.dtype))
    return torch.cat(parts, dim=-2) if parts else Q.new_zeros((*batch, 0, V.shape[-1]))
