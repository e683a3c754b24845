"""RoPE with complex numbers, after LLaMA's inference code with its start_pos.

Wrong: only the first token position of each sequence is used; the others are taken to follow it one by one (p0, p0 + 1, ...). Right
for contiguous positions, wrong for positions with gaps or in another order.
"""

import torch


def precompute_freqs(dim, theta):
    return 1.0 / (theta ** (torch.arange(0, dim, 2).double() / dim))


def apply_rotary_emb(x, freqs_cis):
    work = x if x.dtype == torch.float64 else x.float()
    x_ = torch.view_as_complex(work.reshape(*x.shape[:-1], -1, 2).contiguous())
    x_out = torch.view_as_real(x_ * freqs_cis.to(x_.dtype)).flatten(-2)
    return x_out.type_as(x)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    x = in_query_or_key
    seqlen = x.shape[-2]
    freqs = precompute_freqs(d_k, theta).to(x.device)
    start_pos = token_positions[..., :1]
    t = start_pos + torch.arange(seqlen, device=x.device)
    angles = t.unsqueeze(-1) * freqs
    freqs_cis = torch.polar(torch.ones_like(angles), angles)
    return apply_rotary_emb(x, freqs_cis)
