"""One mistake: x_even and x_odd are views of the tensor that is written to. When the odd components are computed, x_even
already holds the rotated even components, so the odd ones are made from the new value instead of the old one."""
import torch


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    src = in_query_or_key
    dt = torch.float64 if src.dtype == torch.float64 else torch.float32

    k = torch.arange(0, d_k, 2, dtype=torch.float64, device=src.device)
    angles = token_positions.to(torch.float64).unsqueeze(-1) * theta ** (-k / d_k)
    cos = torch.cos(angles).to(dt)
    sin = torch.sin(angles).to(dt)

    lead = torch.broadcast_shapes(src.shape[:-1], token_positions.shape)
    out = src.to(dt).expand(*lead, d_k).clone()  # do not touch the caller's tensor
    x_even = out[..., 0::2]
    x_odd = out[..., 1::2]
    out[..., 0::2] = x_even * cos - x_odd * sin
    out[..., 1::2] = x_even * sin + x_odd * cos
    return out.to(src.dtype)
