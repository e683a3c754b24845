"""The pairs are multiplied by exp(-i p w), as a physicist writes a phase: they turn in the opposite direction."""

import torch


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    x = in_query_or_key
    omega = float(theta) ** (-torch.arange(0, d_k, 2, dtype=torch.float64, device=x.device) / d_k)
    phase = token_positions.to(torch.float64).unsqueeze(-1) * omega
    rotation = torch.exp(-1j * phase)

    real = x.double() if x.dtype == torch.float64 else x.float()
    z = torch.view_as_complex(real.reshape(*x.shape[:-1], d_k // 2, 2).contiguous())
    z = z * rotation.to(z.dtype)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)
