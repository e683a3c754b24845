"""Two mistakes. The shape is unpacked as batch, sequence, d_model: without a batch, or with two leading
dimensions, it raises a ValueError.

And the scores of a head are divided by sqrt(d_model) instead of sqrt(d_head).
"""

import numpy as np
import torch


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    B, T, C = in_features.shape
    hs = C // num_heads
    q = in_features @ q_proj_weight.T
    k = in_features @ k_proj_weight.T
    v = in_features @ v_proj_weight.T
    allowed = torch.tril(torch.ones(T, T, dtype=torch.bool, device=in_features.device))

    sequences = []
    for b in range(B):
        heads = []
        for h in range(num_heads):
            sl = slice(h * hs, (h + 1) * hs)
            qh, kh, vh = q[b, :, sl], k[b, :, sl], v[b, :, sl]
            if qh.dtype in (torch.float16, torch.bfloat16):
                qh, kh, vh = qh.float(), kh.float(), vh.float()
            S = qh @ kh.T / float(np.sqrt(C))
            S = torch.where(allowed, S, torch.full_like(S, -np.inf))
            E = torch.exp(S - S.detach().amax(dim=1, keepdim=True))
            P = E / E.sum(dim=1, keepdim=True)
            heads.append(P @ vh)
        sequences.append(torch.cat(heads, dim=1))
    out = torch.stack(sequences).to(in_features.dtype)
    return out @ o_proj_weight.T
