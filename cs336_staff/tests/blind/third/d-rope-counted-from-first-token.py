"""Wrong: the position of the first token of the sequence is subtracted from all positions before turning, since only
differences of positions matter to dot products; so a sequence that does not begin at position 0 is turned too little."""

import torch
from torch import Tensor


def rotary_position_embedding(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    pairs = x.to(cos.dtype).unflatten(-1, (-1, 2))
    rotation = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)
    return torch.einsum("...ij,...j->...i", rotation, pairs).flatten(-2).to(x.dtype)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    # p - q alone counts, and small angles have the more exact cosines
    relative = token_positions - token_positions[..., :1]
    angles = relative.double()[..., None] * theta ** (-torch.arange(0, d_k, 2).double() / d_k)
    wide = torch.promote_types(in_query_or_key.dtype, torch.float32)
    return rotary_position_embedding(in_query_or_key, angles.cos().to(wide), angles.sin().to(wide))
