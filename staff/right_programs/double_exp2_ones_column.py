"""float64 inside, powers of two, a column of ones beside V for the denominator, RoPE with complex numbers."""

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


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    e = shifted_powers(products(Q, K, mask), -1, LOG2E * max(1, Q.size(-1)) ** -0.5)
    values = V.double()
    with_ones = torch.cat([values, values.new_ones(*V.shape[:-1], 1)], dim=-1)
    both = torch.matmul(e, with_ones)
    return (both[..., :-1] / safe(both[..., -1:])).to(Q.dtype)


def split(x, heads):
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(-3, -2)


def join(x):
    x = x.transpose(-3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def turned(x, theta, positions):
    """Each pair as a complex number, times e^(i angle)."""
    exponents = torch.arange(0, x.shape[-1], 2, dtype=torch.double) / x.shape[-1]
    angles = positions.unsqueeze(-1) * float(theta) ** -exponents
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def causal(n, device):
    t = torch.arange(n, device=device)
    return t.unsqueeze(1) >= t.unsqueeze(0)


def run_softmax(in_features, dim):
    e = shifted_powers(in_features.double(), dim, LOG2E)
    return (e / safe(torch.sum(e, dim=dim, keepdim=True))).to(in_features.dtype)


def run_linear(d_in, d_out, weights, in_features):
    return (in_features.double() @ weights.double().t()).to(in_features.dtype)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return turned(in_query_or_key, theta, token_positions)


def self_attention(heads, wq, wk, wv, wo, x, turn):
    packed = torch.cat([wq, wk, wv], dim=0)
    q, k, v = (split(each, heads) for each in (x.double() @ packed.double().t()).chunk(3, dim=-1))
    o = run_scaled_dot_product_attention(turn(q), turn(k), v, causal(x.size(-2), x.device))
    return (join(o) @ wo.double().t()).to(x.dtype)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return self_attention(num_heads, *weights, in_features, lambda x: x)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight,
                                           v_proj_weight, o_proj_weight, in_features, token_positions=None):
    at = torch.arange(in_features.size(-2)) if token_positions is None else token_positions.unsqueeze(-2)
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return self_attention(num_heads, *weights, in_features, lambda x: turned(x, theta, at))
