"""Softmax in steps, and the mistakes that can be made in each."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cs336_kit.examination.experiment import random
from cs336_kit.examination.table import Change, Rounding, Table, Way, Ways, rounded, sloped, ways_to
from cs336_kit.examination.tell_changes import spell

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
    "What do you take the exponential of?",
    ("sign", "The sign of the logits is reversed.", torch.neg),
    ("absolute", "You take the absolute value of the logits.", torch.abs),
    ("base-2", "You take powers of 2, not of e.", lambda x: x * math.log(2)),
    ("clamp", "Logits beyond ±{} are cut off.", lambda x, c: x.clamp(-c, c), LIMITS),
    ("clamp-above", "Logits above {} are cut off.", lambda x, c: x.clamp(max=c), LIMITS),
    ("factor", "Your logits are multiplied by {}.", lambda x, c: x * c, (-2.0, -0.5, 0.1, 0.5, 2.0, 10.0)),
)

AXIS = ways_to(
    "axis",
    "Which of your operations do you pass `dim` to?",
    ("axis-last", "You normalise the last axis whatever `dim` is.", lambda softmax, x, dim: softmax(x, -1)),
    ("axis-first", "You normalise the first axis whatever `dim` is.", lambda softmax, x, dim: softmax(x, 0)),
    (
        "axis-second",
        "You normalise the second axis whatever `dim` is.",
        lambda softmax, x, dim: softmax(x, min(1, x.ndim - 1)),
    ),
    ("whole-tensor", "You normalise the whole tensor.", in_one),
)

MOVED = "You move the axis `dim` to the end. Where does the answer have it?"
NOT_BACK = "You move the axis `dim` to the end, and do not move it back."
RESHAPED = "You move the axis `dim` to the end, and give the answer the shape of x without moving the axis back."
MOVES = ways_to(
    "axis",
    MOVED,
    ("axis-not-moved-back", NOT_BACK, lambda softmax, x, dim: softmax(x.transpose(dim, -1), -1)),
    ("axis-not-moved-back", NOT_BACK, lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1)),
    ("slices-mixed", RESHAPED, lambda softmax, x, dim: softmax(x.transpose(dim, -1), -1).reshape(x.shape)),
    ("slices-mixed", RESHAPED, lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1).reshape(x.shape)),
    (
        "axis-moved-twice",
        "You move the axis `dim` to the end, and then once more where it should be moved back.",
        lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1).movedim(dim, -1),
    ),
    (
        "axis-moved-otherwise",
        "You exchange `dim` with the last axis, and bring it back with movedim, which shifts the axes between.",
        lambda softmax, x, dim: softmax(x.transpose(dim, -1), -1).movedim(-1, dim),
    ),
    (
        "axis-moved-otherwise",
        "You move `dim` to the end with movedim, and bring it back by exchanging two axes: those between stay shifted.",
        lambda softmax, x, dim: softmax(x.movedim(dim, -1), -1).transpose(dim, -1),
    ),
)

EXPONENTS = ways_to(
    "exponents",
    "Which number may be subtracted from all logits of a slice, and which one keeps every exponent at 0 or below?",
    ("no-shift", "You take the exponential without subtracting the maximum first.", lambda x, dim: x),
    (
        "shift-whole-tensor",
        "You subtract the maximum of the whole tensor, not that of each slice.",
        lambda x, dim: x - x.max(),
    ),
    (
        "shift-mean",
        "You subtract the mean of a slice, not its maximum.",
        lambda x, dim: x - x.mean(dim, keepdim=True),
    ),
    (
        "shift-minimum",
        "You subtract the minimum of a slice, not its maximum.",
        lambda x, dim: x - x.amin(dim, keepdim=True),
    ),
    (
        "shift-from-0",
        "The maximum that you subtract is never below 0.",
        lambda x, dim: x - x.amax(dim, keepdim=True).relu(),
    ),
    (
        "shift-divided",
        "You divide the logits by the maximum; it should be subtracted.",
        lambda x, dim: x / x.amax(dim, keepdim=True),
    ),
    (
        "shift-index",
        "You subtract the place of the maximum, not the maximum: `max(dim)` returns both.",
        lambda x, dim: x - x.argmax(dim, keepdim=True),
    ),
    (
        "shift-magnitude",
        "You subtract the largest absolute value of a slice, not its maximum.",
        lambda x, dim: x - x.abs().amax(dim, keepdim=True),
    ),
    (
        "shift-magnitude",
        "You subtract the largest absolute value of a slice, not its maximum.",
        lambda x, dim: x - x.masked_fill(x == -INF, 0.0).abs().amax(dim, keepdim=True),
    ),
    (
        "maximum-of-another-axis",
        "You take the maximum along the last axis, whatever `dim` is.",
        lambda x, dim: x - x.amax(-1, keepdim=True),
    ),
    (
        "maximum-of-another-axis",
        "You take the maximum along the first axis, whatever `dim` is.",
        lambda x, dim: x - x.amax(0, keepdim=True),
    ),
)

SUM = ways_to(
    "sum",
    "What do you divide the exponentials by? What should the probabilities of a slice sum to?",
    ("not-normalised", "You do not divide the exponentials by their sum.", lambda powers, dim: powers.new_ones(())),
    ("sum-of-all", "You divide by the sum over the whole tensor.", lambda powers, dim: powers.sum()),
    ("mean-for-sum", "You divide by the mean of the exponentials.", lambda powers, dim: powers.mean(dim, keepdim=True)),
    (
        "root-of-squares",
        "You divide by the root of the sum of squares.",
        lambda powers, dim: powers.norm(dim=dim, keepdim=True),
    ),
    (
        "sum-of-another-axis",
        "You take the sum along the last axis, whatever `dim` is.",
        lambda powers, dim: powers.sum(-1, keepdim=True),
    ),
    (
        "sum-of-another-axis",
        "You take the sum along the first axis, whatever `dim` is.",
        lambda powers, dim: powers.sum(0, keepdim=True),
    ),
    (
        "epsilon",
        "You add about {} to the sum.",
        lambda powers, dim, c: powers.sum(dim, keepdim=True) + c,
        DECADES,
    ),
)

QUOTIENT = ways_to(
    "quotient",
    "What do you do with the exponentials and their sum?",
    ("log", "This is the logarithm of softmax.", lambda exponents, powers, total, dim: exponents - total.log()),
    ("log", "This is the logarithm of softmax.", lambda exponents, powers, total, dim: (powers / total).log()),
    ("order", "When the maximum grows within a slice, the sum so far is not rescaled.", by_running_sum),
)

ANSWER = ways_to(
    "answer",
    "Which function should the answer be, and what should the probabilities of a slice sum to?",
    ("sigmoid", "Your answer is the sigmoid of each logit.", lambda p, x, dim: torch.sigmoid(x)),
    ("twice", "The softmax is applied twice.", lambda p, x, dim: torch.softmax(p, dim)),
    (
        "no-exponential",
        "You take no exponential: your answer is the logits, divided by their sum.",
        lambda p, x, dim: x / x.sum(dim, keepdim=True),
    ),
    (
        "sum-not-shifted",
        "The maximum is subtracted above the fraction line and not in the sum below it.",
        lambda p, x, dim: (x - x.amax(dim, keepdim=True)).exp() / x.exp().sum(dim, keepdim=True),
    ),
    (
        "power-not-shifted",
        "The maximum is subtracted in the sum below the fraction line and not above it.",
        lambda p, x, dim: x.exp() / (x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True),
    ),
)


def put_back(how: str, put: Callable[[Tensor], Tensor]) -> tuple[Change, ...]:
    """Mistakes in where the maximum or the sum gets back the axis over which it was taken; `how` begins a sentence."""
    return (
        Change(
            "exponents",
            "keepdim-maximum",
            lambda x, dim: x - put(x.amax(dim)),
            f"{how.format('maximum')}: from a logit you subtract the maximum of another slice, or it raises where the "
            "sizes differ.",
            "What shape does x.amax(dim) have, and what shape with keepdim=True?",
        ),
        Change(
            "sum",
            "keepdim-sum",
            lambda powers, dim: put(powers.sum(dim)),
            f"{how.format('sum')}: you divide by the sum of another slice, or it raises where the sizes differ.",
            "What shape does x.sum(dim) have, and what shape with keepdim=True?",
        ),
    )


KEEPDIM = (
    *put_back("Without keepdim=True, the {} lines up with the wrong axis", lambda x: x),
    *put_back("You put the axis of the {} back at the end, whatever `dim` is", lambda x: x.unsqueeze(-1)),
    *put_back("You put the axis of the {} back at place 1, whatever `dim` is", lambda x: x.unsqueeze(1)),
)


def finite(x: Tensor) -> Tensor:
    return x.clamp(min=torch.finfo(x.dtype).min)


SUM_CUT = "The sum of the exponentials is cut off from autograd: it counts as a constant."
CUTS = (
    *ways_to(
        "sum",
        "Every logit is in the sum of its slice, too. What is the derivative of that?",
        (
            "gradient-sum",
            SUM_CUT,
            lambda powers, dim: powers.sum(dim, keepdim=True).detach(),
        ),
    ),
    *ways_to(
        "quotient",
        "Which line between the logits and the exponentials does autograd not see?",
        (
            "gradient-exponentials",
            "The exponentials that are divided are cut off from autograd: they count as constants.",
            lambda exponents, powers, total, dim: powers.detach() / total,
        ),
    ),
    *ways_to(
        "answer",
        "Which logits does one probability depend on? How large is each of its derivatives?",
        ("gradient-sum", SUM_CUT, lambda p, x, dim: sloped(p, p.detach() * finite(x))),
        (
            "gradient-own",
            "The gradient is that of p(1 - p), as if each probability depended on its own logit alone.",
            lambda p, x, dim: sloped(p, (p * (1 - p)).detach() * finite(x)),
        ),
        (
            "gradient-axis",
            "The gradient takes its inner sum over the last axis, whatever `dim` is.",
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
    cuts=CUTS,
    basic_words="with small logits",
    digits=tuple(BASIC)[2:7:2],
    roundings=(
        Rounding(
            "half-in-half",
            "You compute in {}.",
            (torch.float16, torch.bfloat16),
            lambda dtype: {"digits": lambda x: rounded(x, dtype)},
        ),
        *(
            Rounding(
                "epsilon",
                f"You add {spell(c)} to the sum.",
                (torch.float64,),
                lambda dtype, c=c: {"sum": lambda powers, dim: RIGHT["sum"](powers, dim) + c},
            )
            for c in DECADES
        ),
    ),
)
