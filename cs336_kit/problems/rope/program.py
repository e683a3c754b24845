"""RoPE in steps, and the mistakes that can be made in each."""

import math
from collections.abc import Iterator
from functools import cache
from itertools import product

import torch
from torch import Tensor

from cs336_kit.examination.experiment import random
from cs336_kit.examination.table import Change, Rounding, Table, Way, Ways, rounded, ways_to


def run_rope(
    ways: Ways, d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor
) -> Tensor:
    """RoPE whose steps are done in these ways."""
    positions = ways["count"](ways["positions"](token_positions, in_query_or_key)).double()

    def turn(x: Tensor) -> Tensor:
        d_k = x.shape[-1]
        frequencies = ways["frequencies"](ways["theta"](theta), torch.arange(d_k // 2), d_k)
        angles = ways["angle"](positions.unsqueeze(-1) * frequencies)
        ins, outs, rows = ways["pairs"](d_k)
        matrices = ways["entries"](of_angles(ways["matrix"](angles), rows)).to(x.dtype)
        turned = (matrices @ x[..., ins].unsqueeze(-1)).squeeze(-1)
        answer = turned.new_empty(*turned.shape[:-2], d_k)
        answer[..., outs] = turned
        return answer

    return ways["vector"](in_query_or_key, token_positions, turn)


@cache
def neighbours(d_k: int) -> Tensor:
    return torch.arange(d_k).view(-1, 2)


@cache
def halves(d_k: int) -> Tensor:
    return torch.arange(d_k).view(2, -1).mT


def of_angles(matrices: Tensor, rows: Tensor | None) -> Tensor:
    """Matrices whose rows, (pair, 2), have the angles of these pairs; None for their own."""
    if rows is None:
        return matrices
    return torch.stack([matrices[..., rows[:, row], row, :] for row in range(2)], -2)


def of_cosines(quarters: Tensor) -> Way:
    """A matrix for each angle: cosines of the angle and so many quarter turns."""
    return lambda angles: (angles[..., None, None] + quarters * math.pi / 2).cos()


TURN = torch.tensor([[0, 1], [-1, 0]])
RIGHT: Ways = {
    "positions": lambda positions, x: positions,
    "count": lambda positions: positions,
    "theta": lambda theta: theta,
    "frequencies": lambda theta, i, d_k: theta ** (-2 * i / d_k),
    "angle": lambda angles: angles,
    "matrix": of_cosines(TURN),
    "entries": lambda matrices: matrices,
    "pairs": lambda d_k: (neighbours(d_k), neighbours(d_k), None),
    "vector": lambda x, positions, turn: turn(x),
}


def first_overwritten(angles: Tensor) -> Tensor:
    """The second component is computed from a first one that is rotated already."""
    (c, s), right = (angles.cos(), angles.sin()), RIGHT["matrix"](angles)
    row = s.unsqueeze(-1) * right[..., 0, :] + torch.stack((torch.zeros_like(c), c), -1)
    return torch.stack((right[..., 0, :], row), -2)


def second_overwritten(angles: Tensor) -> Tensor:
    """The same the other way round: the matrix of the angle reversed, with both axes flipped."""
    return first_overwritten(-angles).flip(-1, -2)


def rows_at(x: Tensor, positions: Tensor) -> Tensor:
    return x.index_select(-2, positions.clamp(max=x.shape[-2] - 1))


def half_of(x: Tensor, turn: Way) -> tuple[Tensor, Tensor]:
    """The first half rotated, and the second as it was."""
    first, second = x.chunk(2, -1)
    return turn(first), second


POSITIONS = ways_to(
    "positions",
    "Which position does each row of x have, and which one does your code give it?",
    (
        "row-number",
        "You use the row number in place of the position.",
        lambda positions, x: torch.arange(x.shape[-2]),
    ),
    (
        "from-first",
        "You count on from the first position; positions may skip and go back.",
        lambda positions, x: positions[..., :1] + torch.arange(x.shape[-2]),
    ),
    (
        "first-subtracted",
        "The first position is subtracted from all of them.",
        lambda positions, x: positions - positions[..., :1],
    ),
    (
        "clipped",
        "Positions beyond the last row number are replaced by it.",
        lambda positions, x: positions.clamp(max=x.shape[-2] - 1),
    ),
    (
        "axis-at-1",
        "The positions, or their cosines and sines, get one more axis at place 1, whatever axes x has.",
        lambda positions, x: positions.unsqueeze(1),
    ),
    (
        "positions-reshaped",
        "The positions, or their cosines and sines, are reshaped to the leading axes of x: they may have fewer.",
        lambda positions, x: positions.reshape(x.shape[:-1]),
    ),
    (
        "table-too-short",
        "Your tables of cosines and sines have as many rows as x; positions go up to max_seq_len - 1.",
        lambda positions, x: torch.arange(x.shape[-2])[positions],
    ),
    ("last-position", "Every row is rotated by the last position.", lambda positions, x: positions[..., -1:]),
    ("first-position", "Every row is rotated by the first position.", lambda positions, x: positions[..., :1]),
    (
        "first-sequence",
        "You use the positions of the first sequence for all of them.",
        lambda positions, x: positions[:1] if positions.ndim > 1 else positions,
    ),
    (
        "axis-for-heads",
        "Where the sequences have positions of their own, these get an axis for heads, also where x has none.",
        lambda positions, x: positions.unsqueeze(1) if positions.ndim > 1 else positions,
    ),
    (
        "axis-for-heads",
        "Positions of shape (batch, sequence) get an axis for heads, also where x has none.",
        lambda positions, x: positions.unsqueeze(1) if positions.ndim == 2 else positions,
    ),
    asks_of=dict.fromkeys(
        ("axis-for-heads", "axis-at-1", "positions-reshaped"),
        "Which axes does x have here, and which axes have the cosines and sines?",
    ),
)

COUNT = ways_to(
    "count",
    "What does RoPE do to the token at position 0?",
    ("from-one", "Every position is one too large: you count from 1.", lambda positions: positions + 1),
    (
        "position-unused",
        "The angle does not depend on the position: it is always that of position 1.",
        lambda positions: positions * 0 + 1,
    ),
    ("start", "{} is added to every position.", lambda positions, c: positions + c, (-1.0, 2.0)),
    (
        "positions-rounded",
        "The positions are rounded to bfloat16.",
        lambda positions: rounded(positions, torch.bfloat16),
    ),
)

FREQUENCIES = ways_to(
    "frequencies",
    "By which angle is pair i rotated at position 1? Work it out for the first, second and last pair.",
    ("exponent-half", "Your exponent is i/d_k, not 2i/d_k.", lambda theta, i, d_k: theta ** (-i / d_k)),
    (
        "exponent-doubled",
        "Your exponent has the factor 2 twice: it is 4i/d_k, not 2i/d_k.",
        lambda theta, i, d_k: theta ** (-4 * i / d_k),
    ),
    ("exponent-positive", "The exponent lacks its minus sign.", lambda theta, i, d_k: theta ** (2 * i / d_k)),
    (
        "exponent-from-one",
        "Your pairs count from 1, not from 0.",
        lambda theta, i, d_k: theta ** (-2 * (i + 1) / d_k),
    ),
    (
        "exponent-paper",
        "Your exponent is 2(i - 1)/d_k, which is for pairs that count from 1. Yours count from 0.",
        lambda theta, i, d_k: theta ** (-2 * (i - 1) / d_k),
    ),
    (
        "exponent-linspace",
        "Your exponents are spread from 0 to 1 and reach 1; they should stop at (d_k - 2)/d_k.",
        lambda theta, i, d_k: theta ** -torch.linspace(0, 1, len(i)),
    ),
    (
        "exponent-rounded",
        "The exponent is rounded down to a whole number: `-2 * i // d_k` is 0 or -1.",
        lambda theta, i, d_k: theta ** (-2.0 * i // d_k),
    ),
    (
        "exponent-odd",
        "Your exponent is (2i + 1)/d_k, not 2i/d_k.",
        lambda theta, i, d_k: theta ** (-(2 * i + 1) / d_k),
    ),
    (
        "frequencies-reversed",
        "The pairs are counted from the end: the last pair rotates fastest.",
        lambda theta, i, d_k: theta ** (-2 * i.flip(-1) / d_k),
    ),
    (
        "exponent-no-power",
        "Theta is multiplied by the exponent; it should be raised to it.",
        lambda theta, i, d_k: theta * (-2 * i / d_k),
    ),
    (
        "exponent-inverse",
        "You divide by theta · 2i/d_k; theta should be raised to that power.",
        lambda theta, i, d_k: 1 / (theta * 2 * i / d_k).clamp(min=1e-9),
    ),
    ("exponent-not-divided", "The exponent is not divided by d_k.", lambda theta, i, d_k: theta ** (-2.0 * i)),
    (
        "exponent-precedence",
        "The power is taken too early: `theta ** -2 * i / d_k` is (theta ** -2) * i / d_k.",
        lambda theta, i, d_k: theta**-2 * i / d_k,
    ),
    ("one-angle", "Every pair is rotated by the same angle: the position.", lambda theta, i, d_k: theta ** (0.0 * i)),
    (
        "exponent",
        "The exponent is {} i/d_k, not -2 i/d_k.",
        lambda theta, i, d_k, c: theta ** (c * i / d_k),
        (-3.0, -1.5, -0.5, 1.0),
    ),
)

ANGLE = (
    *ways_to(
        "theta",
        "Which of your lines uses `theta`?",
        ("theta-ignored", "You use theta = 10,000, whatever theta is.", lambda theta: 10000.0),
        ("theta-ignored", "You use theta = {}, whatever theta is.", lambda theta, c: c, (10.0, 100.0, 1e3, 1e5)),
    ),
    *ways_to(
        "angle",
        "In which unit are your angles, and what are they multiplied by?",
        ("degrees", "Every angle is multiplied by π/180, as if it were in degrees.", lambda angles: angles.deg2rad()),
        (
            "angle-factor",
            "Every angle is {} times what it should be.",
            lambda angles, c: angles * c,
            (0.1, 0.5, 1.5, 2.0, 3.0, 6.3),
        ),
        ("angles-rounded", "The angles are rounded to bfloat16.", lambda angles: rounded(angles, torch.bfloat16)),
        ("angles-rounded", "The angles are rounded to float16.", lambda angles: rounded(angles, torch.float16)),
    ),
    *ways_to(
        "entries",
        "In which dtype are your angles, cosines and sines?",
        (
            "precision",
            "The cosines and sines are rounded to bfloat16.",
            lambda matrices: rounded(matrices, torch.bfloat16),
        ),
    ),
)

# The signs of [[cos, -sin], [sin, cos]], 1 where they are right.
NAMED: dict[tuple[int, ...], tuple[str, str]] = {
    (1, -1, -1, 1): ("direction", "You rotate in the opposite direction, by minus the angle."),
    (1, -1, 1, 1): ("no-minus", "Both sines have the same sign: the matrix has lost its minus sign."),
    (1, -1, 1, -1): ("reflection", "The minus sign is on a cosine: this is a reflection, not a rotation."),
}


def tell_rows(quarters: Tensor) -> str:
    """Say which entries a matrix has: the cosine of an angle and so many quarter turns."""
    a, b, c, d = (("cos", "-sin", "-cos", "sin")[int(quarter)] for quarter in quarters.flatten())
    rows = f"({a}, {b}) and ({c}, {d})"
    return f"The rows of the matrix that you apply are {rows}; they should be (cos, -sin) and (sin, cos)."


def one_entry_wrong() -> Iterator[Tensor]:
    """Matrices in which one entry is a cosine in place of a sine, or a sine in place of a cosine."""
    for entry, quarters in product(range(4), (1, 3)):
        wrong = TURN.clone()
        wrong.view(-1)[entry] += quarters
        yield wrong % 4


def with_signs(signs: tuple[int, ...]) -> Change:
    quarters = (TURN + 1 - torch.tensor(signs).view(2, 2)) % 4
    id, says = NAMED.get(signs, ("signs", tell_rows(quarters)))
    asks = "Where does a quarter turn take the vectors (1, 0) and (0, 1)? Where does yours?"
    return Change("matrix", id, of_cosines(quarters), says, asks)


MATRIX = (
    *(with_signs(signs) for signs in NAMED),
    *(with_signs(signs) for signs in product((1, -1), repeat=4) if signs not in NAMED and 0 < signs.count(-1) <= 2),
    *ways_to(
        "matrix",
        "What are the four entries of the rotation matrix of section 5, and which ones does your code use?",
        (
            "sines-for-cosines",
            "You use cosines where sines belong, and sines where cosines belong.",
            of_cosines(torch.tensor([[-1, 2], [0, -1]])),
        ),
        (
            "overwritten",
            "The first component of a pair is overwritten before the second is computed.",
            first_overwritten,
        ),
        (
            "overwritten",
            "The second component of a pair is overwritten before the first is computed.",
            second_overwritten,
        ),
        *(("signs", tell_rows(quarters), of_cosines(quarters)) for quarters in one_entry_wrong()),
        asks_of={
            "overwritten": "Which numbers does each row of the rotation need, and what do your variables hold by then?",
        },
    ),
)

PAIRS = ways_to(
    "pairs",
    "Which two components does section 5 rotate together, and where does each of them go?",
    (
        "pairs-halves",
        "You pair the first half of the vector with the second half, as rotate_half in Hugging Face's LLaMA does.",
        lambda d_k: (halves(d_k), halves(d_k), None),
    ),
    (
        "concatenated",
        "You put the first components of all pairs before the second ones: concatenated, not interleaved.",
        lambda d_k: (neighbours(d_k), halves(d_k), None),
    ),
    (
        "order",
        "You pair the first half of the vector with the second half, and put the pairs back as neighbours.",
        lambda d_k: (halves(d_k), neighbours(d_k), None),
    ),
    (
        "swapped",
        "You swap the two components of every pair.",
        lambda d_k: (neighbours(d_k), neighbours(d_k).flip(-1), None),
    ),
    (
        "two-angles",
        "The two components of a pair rotate by different angles: yours are laid out for pairs (i, i + d_k/2).",
        lambda d_k: (neighbours(d_k), neighbours(d_k), neighbours(d_k) % (d_k // 2)),
    ),
    (
        "pairs-and-angles",
        "You pair the first half of the vector with the second half, as rotate_half in Hugging Face's LLaMA does, and "
        "your angles are laid out for neighbours.",
        lambda d_k: (halves(d_k), halves(d_k), halves(d_k) // 2),
    ),
    asks_of={"two-angles": "Which column of your table does component 0 use, and which component 1?"},
)

VECTOR = ways_to(
    "vector",
    "Which rows of x, and which components of a row, does your code rotate?",
    ("skipped", "Nothing is rotated.", lambda x, positions, turn: x),
    (
        "part",
        "You rotate only the first half of the vector, by the angles of a vector of that length.",
        lambda x, positions, turn: torch.cat(half_of(x, turn), -1),
    ),
    (
        "part",
        "You rotate only the first half of the vector.",
        lambda x, positions, turn: torch.cat((turn(x).chunk(2, -1)[0], x.chunk(2, -1)[1]), -1),
    ),
    (
        "part",
        "You rotate only the second half of the vector, by the angles of a vector of that length.",
        lambda x, positions, turn: torch.cat(half_of(x.roll(x.shape[-1] // 2, -1), turn)[::-1], -1),
    ),
    (
        "rows-moved",
        "`token_positions` also pick the rows of x.",
        lambda x, positions, turn: turn(rows_at(x, positions)),
    ),
)


# The calls: sizes that are all different, positions in order and not, and small angles last, where numbers are fitted.


def call(
    x: Tensor, positions: Tensor, theta: float = 4.0, max_seq_len: int = 50
) -> tuple[int, float, int, Tensor, Tensor]:
    return x.shape[-1], theta, max_seq_len, x, positions


def in_order(*shape: int, theta: float) -> tuple[int, float, int, Tensor, Tensor]:
    return call(random(5, *shape), torch.arange(shape[-2]), theta)


BASIC = {
    "For the vector (1, 0, 1, 0, …) at positions 0 to 5": call(
        torch.tensor([1.0, 0.0]).repeat(6, 4), torch.arange(6), 10.0
    ),
    "For four dimensions": in_order(2, 3, 5, 16, theta=20.0),
    "Where all axes have the same size": in_order(4, 4, 4, 4, theta=100.0),
    "For two dimensions": in_order(5, 12, theta=9.0),
    "For three dimensions": in_order(3, 4, 8, theta=4.0),
}
OTHERS = {
    "Where rows change places": call(random(5, 3, 4, 8), torch.tensor([2, 0, 3, 1])),
    "Where positions skip and go back": call(random(5, 2, 4, 8), torch.tensor([4, 17, 2, 9])),
    "With positions for each sequence": call(random(5, 2, 4, 8), torch.tensor([[4, 0, 5, 1], [2, 3, 0, 4]])),
    "With positions for each sequence and all heads": call(
        random(5, 2, 3, 4, 8), torch.tensor([[[4, 0, 5, 1]], [[2, 3, 0, 4]]])
    ),
    "For a single row": call(random(5, 1, 8), torch.tensor([3])),
    "At positions up to 999": call(random(5, 3, 8), torch.tensor([301, 999, 500]), 10000.0, 1000),
}
FIRST, *REST = BASIC

TABLE = Table(
    run=run_rope,
    right=RIGHT,
    changes=(*PAIRS, *FREQUENCIES, *MATRIX, *POSITIONS, *COUNT, *ANGLE, *VECTOR),
    calls={FIRST: BASIC[FIRST], **OTHERS, **{each: BASIC[each] for each in REST}},
    basic=frozenset(BASIC),
    basic_words="at positions 0, 1, 2, …",
    digits=("For four dimensions", "For two dimensions", "For three dimensions"),
    roundings=(
        Rounding(
            "precision",
            "The cosines and sines are rounded to {}.",
            (torch.float32,),
            lambda dtype: {"entries": lambda matrices: rounded(matrices, dtype)},
        ),
    ),
)
