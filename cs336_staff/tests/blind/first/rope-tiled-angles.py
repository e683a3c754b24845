"""Two conventions are mixed: the components are swapped within neighbouring pairs, but the angles are laid out as
(f0, f1, ..., f0, f1, ...) for pairs of halves, so that both components of a pair are turned by different angles."""

import torch
from torch import Tensor


def rotate_every_two(x: Tensor) -> Tensor:
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    x = in_query_or_key.to(dtype)
    inv_freq = 1.0 / (theta ** (torch.arange(0, d_k, 2, device=x.device, dtype=dtype) / d_k))
    freqs = torch.arange(max_seq_len, device=x.device, dtype=dtype)[:, None] * inv_freq[None, :]
    emb = torch.cat((freqs, freqs), dim=-1)
    cos, sin = emb.cos()[token_positions], emb.sin()[token_positions]
    return (x * cos + rotate_every_two(x) * sin).to(in_query_or_key.dtype)
