"""Rotary position embedding as a module that keeps its table of angles."""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn

from cs336_basics.nn.functional import rotary_position_embedding


class RotaryPositionalEmbedding(nn.Module):
    r"""Rotate pair i of the vector at position p by the angle p · theta^(-2i / d_k).

    Args:
        theta: the base of the angles.
        d_k: length of the vectors, even.
        max_seq_len: positions run from 0 to max_seq_len - 1.
        dtype: of the tables; float32 by default, which serves half precision too.

    Raises:
        ValueError: `d_k` is odd, or (in `forward`) a position lies outside the table.

    Source:
        Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding (2021), section 3.2.2.
    """

    cos: Tensor  # (position, pair)
    sin: Tensor

    def __init__(
        self,
        theta: float,
        d_k: int,
        max_seq_len: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        # BEGIN SOLUTION
        if d_k % 2:
            raise ValueError(f"expected an even d_k, since RoPE rotates pairs, got {d_k}")
        self.max_seq_len = max_seq_len
        # The angles reach max_seq_len radians, where float32 has few digits left behind the point.
        frequencies = theta ** -(torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        positions = torch.arange(max_seq_len, dtype=torch.float64)
        angles = einsum(positions, frequencies, "position, pair -> position pair")
        self.register_buffer("cos", angles.cos().to(device, dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(device, dtype), persistent=False)
        # END SOLUTION

    def forward(
        self, x: Float[Tensor, "... sequence d_k"], token_positions: Int[Tensor, "... sequence"]
    ) -> Float[Tensor, "... sequence d_k"]:
        # BEGIN SOLUTION
        if token_positions.numel() > 0:
            first, last = (int(position) for position in token_positions.aminmax())
            if first < 0 or last >= self.max_seq_len:
                raise ValueError(
                    f"expected token positions from 0 to max_seq_len - 1 = {self.max_seq_len - 1}, "
                    f"got positions from {first} to {last}"
                )
        return rotary_position_embedding(x, self.cos[token_positions], self.sin[token_positions])
        # END SOLUTION
