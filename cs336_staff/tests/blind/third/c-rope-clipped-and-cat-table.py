"""Two mistakes. First: token positions are clipped to the number of rows of the input minus one, instead of being used as
they are (they may go up to max_seq_len - 1). Second: the angles of the pairs are laid out as cat(angles, angles), as for
pairs (i, i + d_k/2), while the components are rotated in neighbouring pairs; it should be repeat_interleave."""
import torch
from torch import Tensor


def rotate_pairs(x: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([-b, a], dim=-1).reshape(x.shape)


class Rope:
    def __init__(self, theta: float, d_k: int, max_len: int):
        inv = 1.0 / theta ** (torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        t = torch.arange(max_len, dtype=torch.float64)
        freqs = t[:, None] * inv[None, :]
        emb = torch.cat((freqs, freqs), dim=-1)
        self.cos, self.sin = emb.cos(), emb.sin()

    def __call__(self, x: Tensor, pos: Tensor) -> Tensor:
        dt = x.dtype if x.dtype == torch.float64 else torch.float32
        pos = pos.clamp(0, x.shape[-2] - 1)  # avoid index out of range
        cos = self.cos.to(x.device, dt)[pos]
        sin = self.sin.to(x.device, dt)[pos]
        y = x.to(dt)
        return (y * cos + rotate_pairs(y) * sin).to(x.dtype)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return Rope(theta, d_k, max_seq_len)(in_query_or_key, token_positions)
