import torch
from torch import nn


class RotaryPositionalEmbedding(nn.Module):
    """Builds the whole block-diagonal rotation matrix of every position. Slow but clear."""

    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        R = torch.zeros(max_seq_len, d_k, d_k)
        position = torch.arange(max_seq_len, dtype=torch.float64)
        for i in range(d_k // 2):
            angle = position * theta ** (-2 * i / d_k)
            R[:, 2 * i, 2 * i] = R[:, 2 * i + 1, 2 * i + 1] = torch.cos(angle).float()
            R[:, 2 * i, 2 * i + 1] = -torch.sin(angle).float()
            R[:, 2 * i + 1, 2 * i] = torch.sin(angle).float()
        self.register_buffer("R", R)

    def forward(self, x, token_positions):
        return torch.einsum("...ij,...j->...i", self.R[token_positions], x)
