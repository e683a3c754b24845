"""Taking a rotation apart: which components pair up, where they go, what happens to a pair, and by which angles.

The rotation is read off once, at positions 0 to 5: of RoPE alone in `rope.py`, inside the heads of an attention in
`multihead_rope.py`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name, place_of_largest
from cs336_kit.examination.experiment import Finding, NoAnswerError, near
from cs336_kit.examination.words import listed, number, numbers

SECTION = "5 Rotary position embedding"
CLOSE = 0.02  # half-precision tables are a finding of their own, and no other
EXACT = 1e-4
THETA, OTHER_THETA = 4.0, 9.0  # small, so that the angles of wrong exponents stay below half a turn
POSITIONS = 6  # that are read off

Finds = Finding | None

Exponents = Mapping[tuple[float, float], tuple[str, str]]

# What θ^(a i + b) says, by a d_k and b d_k.
EXPONENTS: Exponents = {
    (-1, 0): ("exponent-half", "Your exponent is i/d_k, not 2i/d_k."),
    (-4, 0): ("exponent-doubled", "Your exponent counts by two twice: 4i/d_k, not 2i/d_k."),
    (2, 0): ("exponent-positive", "The exponent lacks its minus sign."),
    (-2, -2): ("exponent-from-one", "Your pairs count from 1, not from 0."),
    (-2.7, 0): ("exponent-linspace", "Your exponents are spread from 0 to 1 and reach 1; they should stop before."),
}


@dataclass
class Rotation:
    """The rotation that was read off, from the outside in.

    Args:
        read: gives the rotations (position, out, in) with this theta.
    """

    read: Callable[[float], Tensor]
    d_k: int
    problem: str = "rope"  # the first word of the findings' ids
    exponents: Exponents = field(default_factory=lambda: EXPONENTS)
    maps: Tensor | None = None  # (position, out, in)
    pairs: list[tuple[int, int]] | None = None  # the components that are turned together
    places: list[tuple[int, int]] | None = None  # where each of them comes out
    blocks: Tensor | None = None  # (position, pair, 2, 2): what happens to a pair
    angles: Tensor | None = None  # (position, pair)
    is_right: bool = False  # its angles, at the positions that were read off

    def known_maps(self) -> Tensor:
        if self.maps is None:
            raise NoAnswerError("nothing is rotated")
        return self.maps

    def known_pairs(self) -> list[tuple[int, int]]:
        if self.pairs is None:
            raise NoAnswerError("the components do not form pairs")
        return self.pairs

    def known_blocks(self) -> Tensor:
        if self.blocks is None:
            raise NoAnswerError("a pair does not come out as a pair")
        return self.blocks

    def known_angles(self) -> Tensor:
        if self.angles is None:
            raise NoAnswerError("the pairs are not turned by an angle")
        return self.angles

    def steps(self) -> Tensor:
        """By which angle each pair turns from one position to the next."""
        return wrapped(self.known_angles().diff(dim=0)).median(0).values

    def steps_with(self, theta: float) -> Tensor:
        other = replace(self, maps=self.read(theta))
        for reading in (order, kind, start, direction):
            reading(other)
        return other.steps()


def skipped(rotation: Rotation) -> Finds:
    maps = rotation.read(THETA)
    if not same(maps, maps[:1]):
        rotation.maps = maps
        return None
    left = same(maps, torch.eye(rotation.d_k))
    how = "as it went in" if left else "the same"
    return Finding(
        id=f"{rotation.problem}-{'skipped' if left else 'position-unused'}",
        measured=f"At positions 0 to {len(maps) - 1} every unit vector comes out {how}.",
        means="Nothing is rotated." if left else "The angle does not depend on the position.",
        question="By which angle should (1, 0) turn at position 1?",
        section=SECTION,
        touches=beyond_zero,
    )


def pairs(rotation: Rotation) -> Finds:
    maps = rotation.known_maps()
    mixes = maps[1:].abs().amax(0) > 1e-6  # (out, in)
    partners = [(mixes[:, j].unsqueeze(-1) & mixes).any(0).nonzero().flatten().tolist() for j in range(rotation.d_k)]
    untouched = [j for j in range(rotation.d_k) if bool((maps[..., j] == torch.eye(rotation.d_k)[j]).all())]
    turned = [j for j in range(rotation.d_k) if j not in untouched]
    if all(len(partners[j]) == 2 for j in turned):
        rotation.pairs = [(j, partners[j][1]) for j in turned if partners[j][0] == j]
    if partners == [[j - j % 2, j - j % 2 + 1] for j in range(rotation.d_k)]:
        return None
    id, means = "pairs", ""
    others = [k for k in partners[0] if k]
    found = f"component 0 is mixed with {listed(others)}" if others else "component 0 is mixed with no other"
    measured = f"In a vector of length {rotation.d_k}, {found}; it should be mixed with component 1."
    if untouched:
        id, means = "part", "You rotate only part of the vector."
        measured = f"Components {listed(untouched)} of {rotation.d_k} come out as they went in, at every position."
    elif rotation.pairs == [(i, i + rotation.d_k // 2) for i in range(rotation.d_k // 2)]:
        id = "pairs-halves"
        means = "You pair the first half of the vector with the second half, as LLaMA's rotate_half does."
    question = "Which two components does section 5 rotate together?"
    return Finding(f"{rotation.problem}-{id}", measured, means, question, SECTION, touches=lambda case: width(case) > 2)


def order(rotation: Rotation) -> Finds:
    maps, pairs = rotation.known_maps(), rotation.known_pairs()
    outs = [(maps[1:, :, pair].abs().amax((0, 2)) > 1e-6).nonzero().flatten().tolist() for pair in pairs]
    if any(len(out) != 2 for out in outs):
        return None
    blocks = torch.stack([maps[:, out][:, :, pair] for out, pair in zip(outs, pairs, strict=True)], 1)
    slowest = blocks[0, -1]  # turned the least, if at all
    swapped = bool((torch.linalg.det(blocks) < -0.5).all() and slowest[0, 1].abs() > slowest[0, 0].abs())
    rotation.places = [(b, a) if swapped else (a, b) for a, b in outs]
    rotation.blocks = blocks.flip(-2) if swapped else blocks
    if rotation.places == pairs:
        return None
    id, means = "order", "The rotated components are put back in a different order."
    if swapped:
        id, means = "swapped", "You swap the two components of every pair."
    elif outs == [[i, i + rotation.d_k // 2] for i in range(rotation.d_k // 2)]:
        id = "concatenated"
        means = "You put the first components of all pairs before the second ones: concatenated, not interleaved."
    return Finding(
        id=f"{rotation.problem}-{id}",
        measured=f"Components {listed(pairs[1])} are rotated together and come out as components "
        f"{listed(rotation.places[1])}; they should come out as {listed(pairs[1])}.",
        means=means,
        question="After the rotation, where does each of the two components of a pair go?",
        section=SECTION,
        touches=lambda case: swapped or width(case) > 2,
    )


def kind(rotation: Rotation) -> Finds:
    """Check that a pair is rotated, [[cos, -sin], [sin, cos]], and that nothing else happens to it."""
    a, b, c, d = rotation.known_blocks().flatten(-2).unbind(-1)
    one = torch.ones_like(a)
    rotation.angles = torch.atan2(c, a)
    if same(a, d) and same(b, -c) and same(a * d - b * c, one):
        return None
    if same(a, d) and same(b, c):
        id, means = "no-minus", "Both sines have the same sign: the matrix has lost its minus sign."
    elif same(a, -d) and same(b, c):
        id, means = "reflection", "The minus sign is on a cosine: this is a reflection, not a rotation."
    elif same(c, -a * b) and same(d, a - b * b):
        id, means = "overwritten", "The first component of a pair is overwritten before the second is computed."
        rotation.angles = torch.atan2(-b, a)
    elif same(b, -d * c) and same(a, d - c * c):
        id, means = "overwritten", "The second component of a pair is overwritten before the first is computed."
        rotation.angles = torch.atan2(c, d)
    else:
        id, means, rotation.angles = "no-rotation", "", None
        if same(a * a + b * b, one) and same(c * c + d * d, one):
            id, means = "two-angles", "The two components of a pair are turned by different angles."
    i = int(torch.stack((a - d, b + c)).abs().amax((0, 1)).argmax())
    first, second = rotation.known_blocks()[1, i].T
    return Finding(
        id=f"{rotation.problem}-{id}",
        measured=f"At position 1, pair {i} takes (1, 0) to {numbers(first)} and (0, 1) to {numbers(second)}. A "
        "rotation that takes (1, 0) to (c, s) takes (0, 1) to (-s, c).",
        means=means,
        question="What are the four entries of the rotation matrix of section 5, and which ones does your code use?",
        section=SECTION,
    )


def start(rotation: Rotation) -> Finds:
    first, offset = rotation.known_angles()[0], rotation.known_angles()[0] / rotation.steps()
    if same(first, torch.zeros_like(first)):
        return None
    id, means = "start", ""
    if same(first, torch.full_like(first, math.pi / 2)):
        id, means = "sines-for-cosines", "You use cosines where sines belong, and sines where cosines belong."
        rotation.angles = math.pi / 2 - rotation.known_angles()
    elif same(offset, offset[:1].round()):
        id = "from-one" if offset[0].round() == 1 else "start"
        means = f"Every position counts {number(offset[0].round())} more than it should."
    return Finding(
        id=f"{rotation.problem}-{id}",
        measured=f"At position 0 the pairs turn by {numbers(first)}; they should not turn.",
        means=means,
        question="What does RoPE do to the token at position 0?",
        section=SECTION,
    )


def direction(rotation: Rotation) -> Finds:
    steps = rotation.steps()
    if (steps > 0).any():
        return None
    rotation.angles = -rotation.known_angles()
    return Finding(
        id=f"{rotation.problem}-direction",
        measured=f"From one position to the next the pairs turn by {numbers(steps)}: clockwise. They should turn the "
        "other way, from (1, 0) towards (0, 1).",
        means="The signs of the two sines are swapped.",
        question="Where does a quarter turn take the vector (1, 0)? Where does yours?",
        section=SECTION,
        touches=beyond_zero,
    )


def frequency(rotation: Rotation) -> Finds:
    steps, pair = rotation.steps(), torch.arange(len(rotation.known_pairs()), dtype=torch.double)
    right = THETA ** (-2 * pair / rotation.d_k)
    if alike(steps, right):
        return None
    id, means = _law(steps, rotation.steps_with(OTHER_THETA), pair, rotation)
    return Finding(
        id=f"{rotation.problem}-{id}",
        measured=f"With theta = 4 and d_k = {rotation.d_k} the pairs turn by {numbers(steps)} from one position to the "
        f"next; they should turn by {numbers(right)}.",
        means=means,
        question="By which angle is pair i rotated at position 1? Work it out for the first, second and last pair.",
        section=SECTION,
        touches=beyond_zero,
    )


def _law(steps: Tensor, others: Tensor, pair: Tensor, rotation: Rotation) -> tuple[str, str]:
    """Find the law that the angles follow, from those with either theta: the name of the mistake, and what it means."""
    d_k = rotation.d_k
    factor, exponents = steps * THETA ** (2 * pair / d_k), steps.log() / math.log(THETA)
    slope, first = float((exponents[-1] - exponents[0]) / pair[-1]), float(exponents[0])
    if alike(steps, steps[:1]):
        return "one-angle", "Every pair turns by the same angle."
    if alike(steps, others):
        base = steps[1:] ** (-d_k / (2 * pair[1:]))
        known = f": they are those of theta = {number(base[0])}" if alike(base, base[:1]) else ""
        return "theta-ignored", f"With theta = 9 the angles are the same{known}."
    if alike(factor, factor[:1]) and alike(others * OTHER_THETA ** (2 * pair / d_k), factor):
        means = f"Every angle is {number(factor[0])} times what it should be"
        if math.isclose(factor[0], math.pi / 180, rel_tol=CLOSE):
            return "degrees", f"{means}: that is π/180, as if they were degrees."
        return "angle-factor", f"{means}."
    if alike(steps, THETA ** (slope * pair + first)):
        id, means = rotation.exponents.get((round(slope * d_k, 1), round(first * d_k, 1)), ("exponent", ""))
        exponent = f"{number(slope)} i" + (f" {first:+.3g}" if abs(first) > CLOSE else "")
        return (
            id,
            f"Pair i turns by theta^({exponent}); it should be theta^({number(-2 / d_k)} i). {means}".strip(),
        )
    return "frequency", ""


def precision(rotation: Rotation) -> Finds:
    """The last of them: whether the angles are right, and how exactly."""
    angles = torch.arange(POSITIONS).unsqueeze(-1) * THETA ** (
        -2 * torch.arange(rotation.d_k // 2, dtype=torch.double) / rotation.d_k
    )
    came, right = rotation.known_blocks()[..., 0, 0], angles.cos()
    fits = [dtype for dtype in (torch.bfloat16, torch.float16) if torch.equal(came.to(dtype).double(), came)]
    kept = f"All your cosines fit into {dtype_name(fits[0])}." if fits else ""
    if rotation.known_angles().shape != angles.shape or not same(wrapped(rotation.known_angles() - angles), 0 * angles):
        if not fits or near(came, came.round()):
            raise NoAnswerError("the angles are others")
        measured = kept
    else:
        rotation.is_right = True
        error = (came.abs() - right.abs()).abs()
        if error.max() < EXACT or error.max() > CLOSE:
            return None
        p, i = place_of_largest(error)
        measured = f"At position {p} the cosine of pair {i} is {came[p, i]:.6f}; it should be {right[p, i]:.6f}. {kept}"
    return Finding(
        id=f"{rotation.problem}-precision",
        measured=measured.rstrip(),
        means="The table, or the angles, are in half precision.",
        question="In which dtype are your angles, cosines and sines?",
        section=SECTION,
    )


def width(case: Case) -> int:
    """Of the vectors that are turned."""
    return case.d_k if "d_k" in case.inputs else case.d_model // case.num_heads


def beyond_zero(case: Case) -> bool:
    """Say whether RoPE turns anything in this case."""
    if "theta" not in case.inputs:
        return False
    return case.token_positions is None or bool((case.token_positions != 0).any())


def wrapped(angle: Tensor) -> Tensor:
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def same(a: Tensor, b: Tensor) -> bool:
    return bool(((a - b).abs() < CLOSE).all())


def alike(a: Tensor, b: Tensor) -> bool:
    """The same up to a fraction, for numbers that may be small."""
    return bool(((a / b - 1).abs() < CLOSE).all())
