"""One mistake: the exponent is computed in whole numbers, -2 * i // d_k, which rounds down: it is 0 for the first pair
and -1 for all the others, so every pair but the first turns by p / theta."""
import torch


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    x = in_query_or_key
    i = torch.arange(d_k // 2, device=x.device)
    freq = torch.tensor(float(theta), dtype=torch.float64, device=x.device) ** (-2 * i // d_k)
    angle = torch.outer(torch.arange(max_seq_len, device=x.device).double(), freq)

    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angle.cos().to(wide)[token_positions], angle.sin().to(wide)[token_positions]
    even, odd = x[..., 0::2].to(wide), x[..., 1::2].to(wide)
    out = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return out.flatten(-2).to(x.dtype)
