"""Rotary position embedding in steps."""

import math

import torch
from torch import Tensor

from whichline.way.steps import Steps

SLOWER = "How fast does the first pair turn, and how fast the last?"
PLACE = "By which position is a vector rotated?"
TURN = "To which (x₁, x₂) does a rotation by the angle φ bring (1, 0), and to which (0, 1)?"
PAIRS = "Which two components make a pair?"


def follow_rope(
    step: Steps, d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor
) -> Tensor:
    step.section = "5 Rotary position embedding"
    x, positions = in_query_or_key, token_positions
    step("the vectors", x)
    pair = step("the numbers of the pairs", torch.arange(d_k // 2, dtype=torch.float64))
    step("2i", 2 * pair, SLOWER)
    step("−2i", -2 * pair, SLOWER)
    exponent = step("2i / d_k", 2 * pair / d_k, SLOWER)
    step("−2i / d_k", -exponent, SLOWER)
    step("Θ to the power of 2i / d_k", theta**exponent, SLOWER)
    frequencies = step("the frequencies", theta**-exponent, SLOWER)
    step("the frequencies, each twice", frequencies.repeat_interleave(2))
    step("log Θ", math.log(theta), SLOWER)
    step("the logarithms of the frequencies", -exponent * math.log(theta), SLOWER)
    step("the positions", positions, PLACE)
    every = step("all positions", torch.arange(max_seq_len, dtype=torch.float64), PLACE)
    tables = (("", positions.double()[..., None] * frequencies), (" of all positions", every[:, None] * frequencies))
    for of, angles in tables:
        step(f"the angles{of}", angles, PLACE)
        step(f"the angles{of}, each twice", angles.repeat_interleave(2, -1), PAIRS)
        for name, function in (("cosines", torch.cos), ("sines", torch.sin)):
            step(f"the {name}{of}", function(angles), TURN)
            step(f"the {name}{of}, each twice", function(angles).repeat_interleave(2, -1), PAIRS)
        step(f"the sines{of}, negated", -angles.sin(), TURN)
        matrices = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), -1).unflatten(-1, (2, 2))
        step(f"the rotations{of}", matrices, TURN)
        step(f"the rotations{of} as complex numbers", torch.view_as_real(torch.polar(torch.ones_like(angles), angles)))
    angles = tables[0][1]
    step("the vectors in pairs", x.unflatten(-1, (-1, 2)), PAIRS)
    first, second = (
        step("the first components", x[..., 0::2], PAIRS),
        step("the second components", x[..., 1::2], PAIRS),
    )
    step("(x₂, x₁), side by side", torch.stack((second, first), -1).flatten(-2), TURN)
    step("the signs −1 and 1 in turn", torch.tensor([-1.0, 1.0]).double().repeat(d_k // 2), TURN)
    step("(−x₂, x₁) in pairs", torch.stack((-second, first), -1), TURN)
    step("(−x₂, x₁), side by side", torch.stack((-second, first), -1).flatten(-2), TURN)
    cos, sin = angles.cos(), angles.sin()
    products = {"x₁ cos φ": first * cos, "x₂ sin φ": second * sin, "x₁ sin φ": first * sin, "x₂ cos φ": second * cos}
    for name, product in products.items():
        step(name, product, TURN)
    step("(x₁ cos φ, x₂ cos φ), side by side", x * cos.repeat_interleave(2, -1), TURN)
    step("(−x₂ sin φ, x₁ sin φ), side by side", torch.stack((-second * sin, first * sin), -1).flatten(-2), TURN)
    turned = (
        step("the first components, rotated", first * cos - second * sin, TURN),
        step("the second components, rotated", first * sin + second * cos, TURN),
    )
    step("the pairs, rotated", torch.stack(turned, -1), TURN)
    return step("the answer", torch.stack(turned, -1).flatten(-2), "Where in the vector does each component belong?")
