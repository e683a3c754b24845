"""float64 inside, powers of two, a column of ones beside V for the denominator, division last."""

import math

import torch

LOG2E = 1.0 / math.log(2.0)


def shifted_powers(logits, dim, factor):
    """2^(factor * (logits - max)), zeros where everything is -inf."""
    if logits.numel() == 0:
        return logits
    top = torch.max(logits, dim=dim, keepdim=True).values.detach()
    top = torch.where(top == float("-inf"), torch.zeros_like(top), top)
    return torch.exp2((logits - top) * factor)


def safe(total):
    return torch.where(total > 0, total, torch.where(total == 0, torch.ones_like(total), total))


def products(Q, K, mask):
    s = torch.matmul(Q.double(), K.double().transpose(-2, -1))
    if mask is not None:
        s = torch.where(mask, s, s.new_tensor(float("-inf")))
    return s


def scale_of(Q):
    return LOG2E * max(1, Q.size(-1)) ** -0.5


def attention(Q, K, V, mask=None):
    e = shifted_powers(products(Q, K, mask), -1, scale_of(Q))
    values = V.double()
    with_ones = torch.cat([values, values.new_ones(*V.shape[:-1], 1)], dim=-1)
    both = torch.matmul(e, with_ones)
    return (both[..., :-1] / safe(both[..., -1:])).to(Q.dtype)


def split(x, heads):
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(-3, -2)


def join(x):
    x = x.transpose(-3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def causal(n, device):
    t = torch.arange(n, device=device)
    return t.unsqueeze(1) >= t.unsqueeze(0)


def run_softmax(in_features, dim):
    e = shifted_powers(in_features.double(), dim, LOG2E)
    return (e / safe(torch.sum(e, dim=dim, keepdim=True))).to(in_features.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    packed = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight], dim=0)
    q, k, v = (in_features.double() @ packed.double().t()).split(d_model, dim=-1)
    mask = causal(in_features.size(-2), in_features.device)
    o = attention(split(q, num_heads), split(k, num_heads), split(v, num_heads), mask)
    return (join(o) @ o_proj_weight.double().t()).to(in_features.dtype)


def run_multihead_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key,
                            value, mask=None):
    q = split(query.double() @ q_proj_weight.double().t(), num_heads)
    k = split(key.double() @ k_proj_weight.double().t(), num_heads)
    v = split(value.double() @ v_proj_weight.double().t(), num_heads)
    if mask is not None:
        missing = q.dim() - mask.dim()
        if missing == 2:
            mask = mask.unsqueeze(-2).unsqueeze(-2)
        elif missing == 1:
            mask = mask.unsqueeze(-3)
    return (join(attention(q, k, v, mask)) @ o_proj_weight.double().t()).to(query.dtype)
