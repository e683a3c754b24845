"""RoPE in steps, and the mistakes that can be made in each."""

import math
from collections.abc import Iterator
from functools import cache
from itertools import product

import torch
from torch import Tensor

from cs336_staff.authoring.table import Change, Table, Way, Ways, random, rounded, ways_to


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
    ("row-number", lambda positions, x: torch.arange(x.shape[-2])),
    ("from-first", lambda positions, x: positions[..., :1] + torch.arange(x.shape[-2])),
    ("first-subtracted", lambda positions, x: positions - positions[..., :1]),
    ("clipped", lambda positions, x: positions.clamp(max=x.shape[-2] - 1)),
    ("axis-at-1", lambda positions, x: positions.unsqueeze(1)),
    ("positions-reshaped", lambda positions, x: positions.reshape(x.shape[:-1])),
    ("table-too-short", lambda positions, x: torch.arange(x.shape[-2])[positions]),
    ("last-position", lambda positions, x: positions[..., -1:]),
    ("first-position", lambda positions, x: positions[..., :1]),
    ("first-sequence", lambda positions, x: positions[:1] if positions.ndim > 1 else positions),
    ("axis-for-heads", lambda positions, x: positions.unsqueeze(1) if positions.ndim > 1 else positions),
    ("axis-for-heads", lambda positions, x: positions.unsqueeze(1) if positions.ndim == 2 else positions),
)

COUNT = ways_to(
    "count",
    ("from-one", lambda positions: positions + 1),
    ("position-unused", lambda positions: positions * 0 + 1),
    ("start", lambda positions, c: positions + c, (-1.0, 2.0)),
    ("positions-rounded", lambda positions: rounded(positions, torch.bfloat16)),
)

FREQUENCIES = ways_to(
    "frequencies",
    ("exponent-half", lambda theta, i, d_k: theta ** (-i / d_k)),
    ("exponent-doubled", lambda theta, i, d_k: theta ** (-4 * i / d_k)),
    ("exponent-positive", lambda theta, i, d_k: theta ** (2 * i / d_k)),
    ("exponent-from-one", lambda theta, i, d_k: theta ** (-2 * (i + 1) / d_k)),
    ("exponent-paper", lambda theta, i, d_k: theta ** (-2 * (i - 1) / d_k)),
    ("exponent-linspace", lambda theta, i, d_k: theta ** -torch.linspace(0, 1, len(i))),
    ("exponent-rounded", lambda theta, i, d_k: theta ** (-2.0 * i // d_k)),
    ("exponent-odd", lambda theta, i, d_k: theta ** (-(2 * i + 1) / d_k)),
    ("frequencies-reversed", lambda theta, i, d_k: theta ** (-2 * i.flip(-1) / d_k)),
    ("exponent-no-power", lambda theta, i, d_k: theta * (-2 * i / d_k)),
    ("exponent-inverse", lambda theta, i, d_k: 1 / (theta * 2 * i / d_k).clamp(min=1e-9)),
    ("exponent-not-divided", lambda theta, i, d_k: theta ** (-2.0 * i)),
    ("exponent-precedence", lambda theta, i, d_k: theta**-2 * i / d_k),
    ("one-angle", lambda theta, i, d_k: theta ** (0.0 * i)),
    ("exponent", lambda theta, i, d_k, c: theta ** (c * i / d_k), (-3.0, -1.5, -0.5, 1.0)),
)

ANGLE = (
    *ways_to(
        "theta",
        ("theta-ignored", lambda theta: 10000.0),
        ("theta-ignored", lambda theta, c: c, (10.0, 100.0, 1e3, 1e5)),
    ),
    *ways_to(
        "angle",
        ("degrees", lambda angles: angles.deg2rad()),
        ("angle-factor", lambda angles, c: angles * c, (0.1, 0.5, 1.5, 2.0, 3.0, 6.3)),
        ("angles-rounded", lambda angles: rounded(angles, torch.bfloat16)),
        ("angles-rounded", lambda angles: rounded(angles, torch.float16)),
    ),
    *ways_to("entries", ("precision", lambda matrices: rounded(matrices, torch.bfloat16))),
)

# The signs of [[cos, -sin], [sin, cos]], 1 where they are right.
NAMED: dict[tuple[int, ...], str] = {
    (1, -1, -1, 1): "direction",
    (1, -1, 1, 1): "no-minus",
    (1, -1, 1, -1): "reflection",
}


def one_entry_wrong() -> Iterator[Tensor]:
    """Matrices in which one entry is a cosine in place of a sine, or a sine in place of a cosine."""
    for entry, quarters in product(range(4), (1, 3)):
        wrong = TURN.clone()
        wrong.view(-1)[entry] += quarters
        yield wrong % 4


def with_signs(signs: tuple[int, ...]) -> Change:
    quarters = (TURN + 1 - torch.tensor(signs).view(2, 2)) % 4
    return Change("matrix", NAMED.get(signs, "signs"), of_cosines(quarters))


MATRIX = (
    *(with_signs(signs) for signs in NAMED),
    *(with_signs(signs) for signs in product((1, -1), repeat=4) if signs not in NAMED and 0 < signs.count(-1) <= 2),
    *ways_to(
        "matrix",
        ("sines-for-cosines", of_cosines(torch.tensor([[-1, 2], [0, -1]]))),
        ("overwritten", first_overwritten),
        ("overwritten", second_overwritten),
        *(("signs", of_cosines(quarters)) for quarters in one_entry_wrong()),
    ),
)

PAIRS = ways_to(
    "pairs",
    ("pairs-halves", lambda d_k: (halves(d_k), halves(d_k), None)),
    ("concatenated", lambda d_k: (neighbours(d_k), halves(d_k), None)),
    ("order", lambda d_k: (halves(d_k), neighbours(d_k), None)),
    ("swapped", lambda d_k: (neighbours(d_k), neighbours(d_k).flip(-1), None)),
    ("two-angles", lambda d_k: (neighbours(d_k), neighbours(d_k), neighbours(d_k) % (d_k // 2))),
    ("pairs-and-angles", lambda d_k: (halves(d_k), halves(d_k), halves(d_k) // 2)),
)

VECTOR = ways_to(
    "vector",
    ("skipped", lambda x, positions, turn: x),
    ("part", lambda x, positions, turn: torch.cat(half_of(x, turn), -1)),
    ("part", lambda x, positions, turn: torch.cat((turn(x).chunk(2, -1)[0], x.chunk(2, -1)[1]), -1)),
    ("part", lambda x, positions, turn: torch.cat(half_of(x.roll(x.shape[-1] // 2, -1), turn)[::-1], -1)),
    ("rows-moved", lambda x, positions, turn: turn(rows_at(x, positions))),
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
)
