"""Two mistakes. First: what the heads contribute through their columns of W_O is averaged over the heads instead of
summed, so the answer is smaller by the number of heads. Second: with RoPE the values are rotated, too, and not only the
queries and keys."""
import torch
from torch import Tensor


class Rope:
    def __init__(self, theta, d, n, device):
        i = torch.arange(d // 2, dtype=torch.float64, device=device)
        a = torch.arange(n, dtype=torch.float64, device=device)[:, None] / theta ** (2 * i / d)
        self.z = torch.polar(torch.ones_like(a), a)

    def __call__(self, x: Tensor, pos: Tensor) -> Tensor:
        z = self.z[pos]
        re, im = z.real.to(x.dtype), z.imag.to(x.dtype)
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * re - b * im, a * im + b * re), -1).flatten(-2)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    T = q.shape[-2]
    s = q @ k.mT / q.shape[-1] ** 0.5
    later = torch.triu(torch.ones(T, T, dtype=torch.bool, device=q.device), 1)
    e = torch.exp((s := s.masked_fill(later, -torch.inf)) - s.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) @ v


def forward(x, wq, wk, wv, wo, heads, rope=None, pos=None):
    dt = x.dtype
    if dt in (torch.float16, torch.bfloat16):
        x, wq, wk, wv, wo = (t.float() for t in (x, wq, wk, wv, wo))
    q, k, v = x @ wq.T, x @ wk.T, x @ wv.T
    d = q.shape[-1] // heads
    parts = []
    for h in range(heads):
        cols = slice(h * d, (h + 1) * d)
        qkv = [t[..., cols] for t in (q, k, v)]
        if rope is not None:
            qkv = [rope(t, pos) for t in qkv]
        parts.append(causal_attention(*qkv) @ wo[:, cols].T)
    return torch.stack(parts).mean(0).to(dt)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    return forward(in_features, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, num_heads)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features,
    token_positions=None,
):
    device = in_features.device
    pos = torch.arange(in_features.shape[-2], device=device) if token_positions is None else token_positions
    rope = Rope(theta, d_model // num_heads, max_seq_len, device)
    return forward(in_features, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, num_heads, rope, pos)
