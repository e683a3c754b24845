"""float64 inside, powers of two, a column of ones beside V for the denominator, division last, complex RoPE, two passes."""

import math

import torch
from torch import Tensor

LOG2E = 1.0 / math.log(2.0)


def shifted_powers(logits: Tensor, dim: int, factor: float) -> Tensor:
    """2^(factor * (logits - max)), zeros where everything is -inf."""
    if logits.numel() == 0:
        return logits
    top = torch.max(logits, dim=dim, keepdim=True).values.detach()
    top = torch.where(top == float("-inf"), torch.zeros_like(top), top)
    return torch.exp2((logits - top) * factor)


def safe(total: Tensor) -> Tensor:
    return torch.where(total > 0, total, torch.where(total == 0, torch.ones_like(total), total))


def products(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    s = torch.matmul(Q.double(), K.double().transpose(-2, -1))
    if mask is not None:
        s = torch.where(mask, s, s.new_tensor(float("-inf")))
    return s


def scale_of(Q: Tensor) -> float:
    return LOG2E * max(1, Q.size(-1)) ** -0.5


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    e = shifted_powers(products(Q, K, mask), -1, scale_of(Q))
    values = V.double()
    with_ones = torch.cat([values, values.new_ones(*V.shape[:-1], 1)], dim=-1)
    both = torch.matmul(e, with_ones)
    return (both[..., :-1] / safe(both[..., -1:])).to(Q.dtype)


def turn(x: Tensor, theta: float, positions: Tensor) -> Tensor:
    d = x.size(-1)
    exponents = torch.arange(d // 2, dtype=torch.float64, device=x.device) * (-2.0 / d)
    angles = positions.double().unsqueeze(-1) * torch.pow(float(theta), exponents)
    unit = torch.polar(torch.ones_like(angles), angles)
    wide = x.double()
    z = torch.complex(wide[..., 0::2], wide[..., 1::2]) * unit
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


def split(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(-3, -2)


def join(x: Tensor) -> Tensor:
    x = x.transpose(-3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def causal(n: int, device: torch.device) -> Tensor:
    t = torch.arange(n, device=device)
    return t.unsqueeze(1) >= t.unsqueeze(0)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    e = shifted_powers(in_features.double(), dim, LOG2E)
    return (e / safe(torch.sum(e, dim=dim, keepdim=True))).to(in_features.dtype)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return attention(Q, K, V, mask)


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return (in_features.double() @ weights.double().t()).to(in_features.dtype)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return turn(in_query_or_key, theta, token_positions)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    packed = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight], dim=0)
    q, k, v = (in_features.double() @ packed.double().t()).split(d_model, dim=-1)
    mask = causal(in_features.size(-2), in_features.device)
    o = attention(split(q, num_heads), split(k, num_heads), split(v, num_heads), mask)
    return (join(o) @ o_proj_weight.double().t()).to(in_features.dtype)


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
    n = in_features.size(-2)
    if token_positions is None:
        token_positions = torch.arange(n, device=in_features.device)
    token_positions = token_positions.unsqueeze(-2)
    packed = torch.cat([q_proj_weight, k_proj_weight, v_proj_weight], dim=0)
    q, k, v = (in_features.double() @ packed.double().t()).split(d_model, dim=-1)
    q = turn(split(q, num_heads), theta, token_positions)
    k = turn(split(k, num_heads), theta, token_positions)
    o = attention(q, k, split(v, num_heads), causal(n, in_features.device))
    return (join(o) @ o_proj_weight.double().t()).to(in_features.dtype)


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    e = shifted_powers(products(Q, K, mask), -1, scale_of(Q))
    w = e / safe(e.sum(-1, keepdim=True))
    if training:
        torch.manual_seed(seed)
        keep = torch.bernoulli(torch.full_like(w, 1.0 - dropout))
        w = w * keep / (1.0 - dropout)
    return torch.matmul(w, V.double()).to(Q.dtype), w.to(Q.dtype)


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


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    size = 128 if block_size is None else block_size
    n, keys = Q.size(-2), K.size(-2)
    c = scale_of(Q)
    leads = [Q.shape[:-2], K.shape[:-2], V.shape[:-2]] + ([] if mask is None else [mask.shape[:-2]])
    batch = torch.broadcast_shapes(*leads)

    def tile(i: int, j: int) -> Tensor:
        part = None
        if mask is not None:
            r = slice(i, i + size) if mask.size(-2) > 1 else slice(None)
            s = slice(j, j + size) if mask.size(-1) > 1 else slice(None)
            part = mask[..., r, s]
        return products(Q[..., i : i + size, :], K[..., j : j + size, :], part)

    answers = []
    for i in range(0, n, size):
        rows = min(size, n - i)
        top = None  # the first pass finds the largest score of each query, the second adds up
        with torch.no_grad():
            for j in range(0, keys, size):
                here = tile(i, j).max(dim=-1, keepdim=True).values
                top = here if top is None else torch.maximum(top, here)
            if top is not None:
                top = torch.where(top == float("-inf"), torch.zeros_like(top), top)
        numerator = torch.zeros(*batch, rows, V.size(-1), dtype=torch.float64, device=Q.device)
        denominator = torch.zeros(*batch, rows, 1, dtype=torch.float64, device=Q.device)
        for j in range(0, keys, size):
            e = torch.exp2((tile(i, j) - top) * c)
            numerator = numerator + torch.matmul(e, V[..., j : j + size, :].double())
            denominator = denominator + e.sum(-1, keepdim=True)
        answers.append((numerator / safe(denominator)).to(Q.dtype))
    return torch.cat(answers, -2) if answers else Q.new_zeros(*batch, 0, V.size(-1))
