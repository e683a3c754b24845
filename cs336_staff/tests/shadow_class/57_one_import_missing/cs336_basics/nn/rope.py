import torch


class RotaryPositionalEmbedding:
    def __init__(self, theta, d_k, max_seq_len):
        self.angles = torch.arange(max_seq_len)[:, None] * theta ** -(torch.arange(0, d_k, 2) / d_k)

    def __call__(self, x, p):
        a = self.angles[p]
        e, o = x[..., ::2], x[..., 1::2]
        return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)
