"""Softmax in steps, and the mistakes that can be made in each."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cs336_staff.authoring.table import Change, Table, Way, Ways, random, sloped, ways_to

INF = math.inf
DECADES = tuple(10.0**-k for k in range(1, 13))
LIMITS = (10.0, 20.0, 50.0, 80.0, 100.0, 200.0)


def normalise(ways: Ways, x: Tensor, dim: int) -> Tensor:
    """Softmax whose steps are done in these ways."""
    keep = ways["digits"]

    def divide(x: Tensor, dim: int) -> Tensor:
        exponents = keep(ways["exponents"](x, dim))
        powers = keep(exponents.exp())
        return ways["quotient"](exponents, powers, keep(ways["guard"](ways["sum"](powers, dim))), dim)

    logits = ways["logits"](x)
    return ways["answer"](keep(ways["axis"](divide, logits, dim)), logits, dim)


def below_largest(x: Tensor, dim: int) -> Tensor:
    """The logits less the largest of their slice, by way of a function that a student may not call."""
    logarithms = torch.log_softmax(x, dim)
    return logarithms - logarithms.amax(dim, keepdim=True)


RIGHT: Ways = {
    "logits": lambda x: x,
    "axis": lambda softmax, x, dim: softmax(x, dim),
    "exponents": below_largest,
    "sum": lambda powers, dim: powers.sum(dim, keepdim=True),
    "guard": lambda total: total,
    "quotient": lambda exponents, powers, total, dim: powers / total,
    "answer": lambda p, x, dim: p,
    "digits": lambda x: x,
}
GUARD: Ways = {"guard": lambda total: total.where(total != 0, 1.0)}
LOGARITHMS: Ways = {"quotient": lambda exponents, powers, total, dim: (exponents - total.log()).exp()}
ALSO_RIGHT: tuple[Ways, ...] = (GUARD, LOGARITHMS, {**GUARD, **LOGARITHMS})


def by_running_sum(exponents: Tensor, powers: Tensor, total: Tensor, dim: int) -> Tensor:
    """The exponentials relative to the largest so far are summed as if it did not change."""
    largest = exponents.cummax(dim).values.clamp_min(torch.finfo(exponents.dtype).min)
    return powers / (exponents - largest).exp().sum(dim, keepdim=True)


def in_one(softmax: Way, x: Tensor, dim: int) -> Tensor:
    return softmax(x.flatten(), 0).view_as(x)


LOGITS = ways_to(
    "logits",
    ("sign", torch.neg),
    ("absolute", torch.abs),
    ("base-2", lambda x: x * math.log(2)),
    ("clamp", lambda x, c: x.clamp(-c, c), LIMITS),
    ("clamp-above", lambda x, c: x.clamp(max=c), LIMITS),
    ("factor", lambda x, c: x * c, (-2.0, -0.5, 0.1, 0.5, 2.0, 10.0)),
)

AXIS = ways_to(
    "axis",
    ("axis-last", lambda softmax, x, dim: softmax(x, -1)),
    ("axis-first", lambda softmax, x, dim: softmax(x, 0)),
    ("axis-second", lambda softmax, x, dim: softmax(x, min(1, x.ndim - 1))),
    ("whole-tensor", in_one),
)

MOVES = ways_to(
    "axis",
    ("axis-not-moved-back", lambda softmax, x, dim: softmax(x.transpose(dim, -1), -1)),
    ("axis-not-moved-back", lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1)),
    ("slices-mixed", lambda softmax, x, dim: softmax(x.transpose(dim, -1), -1).reshape(x.shape)),
    ("slices-mixed", lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1).reshape(x.shape)),
    ("axis-moved-twice", lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1).movedim(dim, -1)),
    ("axis-moved-otherwise", lambda softmax, x, dim: softmax(x.transpose(dim, -1), -1).movedim(-1, dim)),
    ("axis-moved-otherwise", lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1).transpose(dim, -1)),
)

EXPONENTS = ways_to(
    "exponents",
    ("no-shift", lambda x, dim: x),
    ("shift-whole-tensor", lambda x, dim: x - x.max()),
    ("shift-mean", lambda x, dim: x - x.mean(dim, keepdim=True)),
    ("shift-minimum", lambda x, dim: x - x.amin(dim, keepdim=True)),
    ("shift-from-0", lambda x, dim: x - x.amax(dim, keepdim=True).relu()),
    ("shift-divided", lambda x, dim: x / x.amax(dim, keepdim=True)),
    ("shift-index", lambda x, dim: x - x.argmax(dim, keepdim=True)),
    ("shift-magnitude", lambda x, dim: x - x.abs().amax(dim, keepdim=True)),
    ("shift-magnitude", lambda x, dim: x - x.masked_fill(x == -INF, 0.0).abs().amax(dim, keepdim=True)),
    ("maximum-of-another-axis", lambda x, dim: x - x.amax(-1, keepdim=True)),
    ("maximum-of-another-axis", lambda x, dim: x - x.amax(0, keepdim=True)),
)

SUM = ways_to(
    "sum",
    ("not-normalised", lambda powers, dim: powers.new_ones(())),
    ("sum-of-all", lambda powers, dim: powers.sum()),
    ("mean-for-sum", lambda powers, dim: powers.mean(dim, keepdim=True)),
    ("root-of-squares", lambda powers, dim: powers.norm(dim=dim, keepdim=True)),
    ("sum-of-another-axis", lambda powers, dim: powers.sum(-1, keepdim=True)),
    ("sum-of-another-axis", lambda powers, dim: powers.sum(0, keepdim=True)),
    ("epsilon", lambda powers, dim, c: powers.sum(dim, keepdim=True) + c, DECADES),
)

QUOTIENT = ways_to(
    "quotient",
    ("log", lambda exponents, powers, total, dim: exponents - total.log()),
    ("log", lambda exponents, powers, total, dim: (powers / total).log()),
    ("order", by_running_sum),
)

ANSWER = ways_to(
    "answer",
    ("sigmoid", lambda p, x, dim: torch.sigmoid(x)),
    ("twice", lambda p, x, dim: torch.softmax(p, dim)),
    ("no-exponential", lambda p, x, dim: x / x.sum(dim, keepdim=True)),
    ("sum-not-shifted", lambda p, x, dim: (x - x.amax(dim, keepdim=True)).exp() / x.exp().sum(dim, keepdim=True)),
    ("power-not-shifted", lambda p, x, dim: x.exp() / (x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True)),
)


def put_back(put: Callable[[Tensor], Tensor]) -> tuple[Change, ...]:
    """Mistakes in where the maximum or the sum gets back the axis over which it was taken."""
    return (
        Change("exponents", "keepdim-maximum", lambda x, dim: x - put(x.amax(dim))),
        Change("sum", "keepdim-sum", lambda powers, dim: put(powers.sum(dim))),
    )


KEEPDIM = (*put_back(lambda x: x), *put_back(lambda x: x.unsqueeze(-1)), *put_back(lambda x: x.unsqueeze(1)))


def finite(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).min)


CUTS = (
    *ways_to("sum", ("gradient-sum", lambda powers, dim: powers.sum(dim, keepdim=True).detach())),
    *ways_to("quotient", ("gradient-exponentials", lambda exponents, powers, total, dim: powers.detach() / total)),
    *ways_to(
        "answer",
        ("gradient-sum", lambda p, x, dim: sloped(p, p.detach() * finite(x))),
        ("gradient-own", lambda p, x, dim: sloped(p, (p * (1 - p)).detach() * finite(x))),
        (
            "gradient-axis",
            lambda p, x, dim: sloped(p, p.detach() * (finite(x) - (p.detach() * finite(x)).sum(-1, keepdim=True))),
        ),
    ),
)

SHAPES = (
    ((3, 4), -1),
    ((3, 4), 0),
    ((5,), 0),
    ((2, 3, 4), 1),
    ((2, 3, 4), 0),
    ((2, 3, 4), -2),
    ((3, 2, 5, 4), 2),
    ((4, 4), -1),
    ((3, 3, 3), 0),
    ((3, 3, 3), 1),
    ((3, 3, 3), -1),
)
LEVELS = torch.tensor([1, 2, 5, 10, 15, 20, 30, 40, 50, 70, 90, 150, 500, 2e3]).unsqueeze(-1)
HEIGHTS = torch.stack((LEVELS, -LEVELS.clamp(max=90)))  # the exponential of what is lower is 0
FEW = torch.tensor([[0.0, 1, 2, 3], [2, 0, 3, 1], [3, 1, 0, 2], [1, 3, 2, 0]])
BASIC = {f"For shape {shape} and dim={dim}": (random(0, *shape), dim) for shape, dim in SHAPES}
OTHERS = (torch.arange(4.0) > 0).unsqueeze(-1)
CALLS = {
    **BASIC,
    "For logits around 1,000": (FEW + 1e3, -1),
    "For logits around -1,000": (FEW - 1e3, -1),
    "For one slice around 0 and others around -1,000": (FEW - 1e3 * OTHERS, -1),
    "For logits of 0 and -100 in one slice": (FEW - 100 * OTHERS.mT, -1),
    "For logits of 0 and -200 in one slice": (FEW - 200 * OTHERS.mT, -1),
    "With logits of -inf": (FEW.where(FEW != 1, -INF), -1),
    "For logits at different heights": (HEIGHTS + torch.arange(14.0) % 3, -1),
}
TABLE = Table(
    run=normalise,
    right=RIGHT,
    changes=(*EXPONENTS, *KEEPDIM, *AXIS, *MOVES, *SUM, *LOGITS, *QUOTIENT, *ANSWER),
    calls=CALLS,
    basic=frozenset(BASIC),
    also_right=ALSO_RIGHT,
)
