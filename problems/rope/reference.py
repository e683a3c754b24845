"""Rotary position embedding. Unused values are other right ways to write it."""

import math

import torch
from torch import Tensor


# 5 Rotary position embedding
def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    x = in_query_or_key  #: the vectors
    pair = torch.arange(d_k // 2, dtype=torch.float64)  #: the numbers of the pairs
    #: How fast does the first pair turn, and how fast the last?
    two_i = 2 * pair  #: 2i
    minus_two_i = -2 * pair  #: −2i
    exponent = two_i / d_k  #: 2i / d_k
    minus_exponent = -exponent  #: −2i / d_k
    power = theta**exponent  #: Θ to the power of 2i / d_k
    frequencies = theta**minus_exponent  #: the frequencies
    log_theta = math.log(theta)  #: log Θ
    log_frequencies = minus_exponent * log_theta  #: the logarithms of the frequencies

    positions = token_positions  #: the positions. By which position is a vector rotated?
    every = torch.arange(max_seq_len, dtype=torch.float64)  #: all positions. By which position is a vector rotated?
    cos, sin = list_angles(positions.double(), frequencies)
    list_angles(every, frequencies)  #: all positions
    #: Which two components make a pair?
    pairs = x.unflatten(-1, (-1, 2))  #: the vectors in pairs
    first = x[..., 0::2]  #: the first components
    second = x[..., 1::2]  #: the second components

    #: To which (x₁, x₂) does a rotation by the angle φ bring (1, 0), and to which (0, 1)?
    turned_pairs = torch.stack((-second, first), -1)  #: (−x₂, x₁) in pairs
    turned = turned_pairs.flatten(-2)  #: (−x₂, x₁), side by side
    first_cos = first * cos  #: x₁ cos φ
    second_sin = second * sin  #: x₂ sin φ
    first_sin = first * sin  #: x₁ sin φ
    second_cos = second * cos  #: x₂ cos φ
    by_cos = torch.stack((first_cos, second_cos), -1).flatten(-2)  #: (x₁ cos φ, x₂ cos φ), side by side
    by_sin = torch.stack((-second_sin, first_sin), -1).flatten(-2)  #: (−x₂ sin φ, x₁ sin φ), side by side
    first_rotated = first_cos - second_sin  #: the first components, rotated
    second_rotated = first_sin + second_cos  #: the second components, rotated
    rotated = torch.stack((first_rotated, second_rotated), -1)  #: the pairs, rotated
    return rotated.flatten(-2)  #: the answer. Where in the vector does each component belong?


def list_angles(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the cosines and sines of the angles of all pairs."""
    angles = positions[..., None] * frequencies  #: the angles. By which position is a vector rotated?
    angles_twice = angles.repeat_interleave(2, -1)  #: the angles of {}, each twice. Which two components make a pair?
    #: To which (x₁, x₂) does a rotation by the angle φ bring (1, 0), and to which (0, 1)?
    cosines = angles.cos()
    cos_twice = cosines.repeat_interleave(2, -1)  #: the cosines of {}, each twice. Which two components make a pair?
    sines = angles.sin()
    sines_twice = sines.repeat_interleave(2, -1)  #: the sines of {}, each twice. Which two components make a pair?
    minus_sines = -sines  #: the sines of {}, negated
    rotations = torch.stack((cosines, -sines, sines, cosines), -1).unflatten(-1, (2, 2))

    numbers = torch.polar(torch.ones_like(angles), angles)  #: the rotations of {} as complex numbers
    return cosines, sines
