import torch
from torch import Tensor


class RotaryPositionalEmbedding:
    def __init__(self, theta: float, d_k: int, max_seq_len: int) -> None:
        i = torch.arange(d_k // 2, dtype=torch.float64)
        angle = torch.arange(max_seq_len, dtype=torch.float64).outer(theta ** (-2 * i / d_k))
        self.cos, self.sin = angle.cos().float(), angle.sin().float()

    def __call__(self, x: Tensor, token_positions: Tensor) -> Tensor:
        cos, sin = self.cos[token_positions], self.sin[token_positions]
        a, b = x.view(*x.shape[:-1], -1, 2).unbind(-1) if x.is_contiguous() else (x[..., ::2], x[..., 1::2])
        return torch.stack([cos * a - sin * b, sin * a + cos * b], dim=-1).reshape(x.shape)
