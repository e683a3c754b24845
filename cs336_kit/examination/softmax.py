"""Examine a student's softmax: which axis it normalises, which function of the logits, and what large ones do to it.

Given the probabilities p of logits x, their logarithm is x minus one number for each slice, if they are a softmax.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import dtype_name
from cs336_kit.examination.contract import Contract
from cs336_kit.examination.crash import Variation, try_calls
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, examine, near, span

SECTION = "2 Softmax"
FAR = 1000.0  # exp of it is infinite, and of -1000 it is 0
finding = partial(Finding, section=SECTION)


@dataclass(frozen=True)
class Call:
    shape: tuple[int, ...] = (3, 4)
    dim: int = -1
    dtype: torch.dtype = torch.float32

    @property
    def arguments(self) -> tuple[Tensor, int]:
        return draw(self.shape).to(self.dtype), self.dim


def draw(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _dtype(dtype: torch.dtype) -> Variation[Call]:
    name = dtype_name(dtype)
    question = "Which of your operations does not exist for this dtype, or mixes it with another?"
    return Variation(name, f"in {name}", lambda call: replace(call, dtype=dtype), question, lambda c: c.dtype == dtype)


def _shape(id: str, words: str, shape: tuple[int, ...], dim: int, question: str) -> Variation[Call]:
    return Variation(
        id,
        words,
        lambda call: replace(call, shape=shape, dim=dim),
        question,
        lambda c: c.in_features.ndim == len(shape) and c.dim % len(shape) == dim % len(shape),
    )


KEEP = "What shape does x.sum(dim) have, and what shape with keepdim=True?"
ANY = "Does your code count dimensions, although there may be any number of them?"
VARIATIONS = (
    _shape("first-dim", "for shape (3, 4) and dim=0", (3, 4), 0, KEEP),
    _shape("1d", "for shape (4,) and dim=0", (4,), 0, ANY),
    _shape("3d-last-dim", "for shape (2, 3, 4) and dim=-1", (2, 3, 4), -1, KEEP),
    _shape("3d-middle-dim", "for shape (2, 3, 4) and dim=1", (2, 3, 4), 1, KEEP),
    _shape("3d-first-dim", "for shape (2, 3, 4) and dim=0", (2, 3, 4), 0, KEEP),
    _shape("3d-negative-dim", "for shape (2, 3, 4) and dim=-2", (2, 3, 4), -2, KEEP),
    _shape("4d", "for shape (2, 3, 4, 2) and dim=2", (2, 3, 4, 2), 2, ANY),
    _dtype(torch.float64),
    _dtype(torch.float16),
    _dtype(torch.bfloat16),
)


@dataclass
class Softmax:
    """The student's function, and what has been found out about it.

    Args:
        ask: asks it.
        rows: the probabilities of rows of logits, asked for in a way in which the student's function normalises rows.
        alone: the same of one row at a time, when the whole tensor is normalised.
        one_axis: it normalises the axis that it should.
        stable: it is a softmax in which large logits of both signs give probabilities.
        exponential: the probabilities are powers of e.
    """

    ask: Ask
    transposed: bool = False
    alone: bool = False
    one_axis: bool = True
    stable: bool = True
    exponential: bool = True

    def __call__(self, x: Tensor, dim: int) -> Tensor:
        return self.ask.tensor(x.shape, x, dim)

    def rows(self, x: list[list[float]] | Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The probabilities of logits, asked for in a way in which the function normalises the rows."""
        x = torch.as_tensor(x, dtype=dtype)
        if self.alone:
            return torch.cat([self(row, -1) for row in x.split(1)])
        return self(x.mT.contiguous(), 0).mT if self.transposed else self(x, -1)

    def keeps(self, dtype: torch.dtype) -> bool:
        return self.ask(draw((3, 4)).to(dtype), 0 if self.transposed else -1).dtype == dtype

    def working_dims(self) -> list[int]:
        """Those along which a tensor of three different sizes can be normalised at all."""
        working = []
        for dim in (0, 1, 2, -3, -2, -1):
            with suppress(NoAnswerError):
                self(draw((2, 3, 4)), dim)
                working.append(dim)
        return working


def examine_softmax(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run(in_features, dim)`, the most fundamental first."""
    ask = Ask(run)
    calls = try_calls(ask, "softmax", SECTION, Call(), "for shape (3, 4) and dim=-1", VARIATIONS)
    if calls.works is None:
        return calls.findings
    student = Softmax(ask, transposed=calls.works.dim == 0)
    contract = Contract(ask, "softmax", SECTION, ("x", "dim"), calls.works.arguments, calls.works.shape)
    values = (axis, sums, slices, formula, shift, clamp, minus_infinity)
    experiments = (
        contract.repeatable,
        *(partial(each, student) for each in values),
        contract.dtype,
        partial(precision, student),
        partial(half_precision, student),
        contract.inputs_left_alone,
        contract.gradients,
    )
    return [*calls.findings, *examine(experiments)]


def axis(student: Softmax) -> Finding | None:
    """Over which axis the answer sums to 1, for each `dim`."""
    x = draw((2, 3, 4))
    went: dict[int, int] = {}  # from what was asked to what was normalised, where that is another axis
    for dim in student.working_dims():
        answer = student(x, dim)
        if near(answer.sum(), 1.0) and x.shape[dim] != x.numel():
            student.alone = True
            measured = f"With dim={dim} your whole answer sums to 1, and its slices to {span(answer.sum(dim))}."
            question = "How many slices does a tensor of shape (2, 3, 4) have along dim=0, and what should each sum to?"
            return finding("softmax-whole-tensor", measured, "You normalise the whole tensor.", question)
        normalised = [each for each in range(3) if near(answer.sum(each), 1.0)]
        if normalised and dim % 3 not in normalised:
            went[dim] = normalised[0]
    if not went:
        return None
    student.one_axis = False
    dim, instead = next(iter(went.items()))
    answer = student(x, dim)
    student.transposed = near(student(draw((3, 4)), -1).sum(0), 1.0)
    measured = (
        f"With dim={dim} on shape (2, 3, 4) your answer sums to 1 over axis {instead}, and to "
        f"{span(answer.sum(dim))} over axis {dim % 3}."
    )
    always = len(set(went.values())) == 1 and len(went) >= 4
    name = ("first", "second", "last")[instead] if always else "moved"
    means = f"You normalise axis {instead} whatever `dim` is." if always else "You normalise an axis other than `dim`."
    return finding(f"softmax-axis-{name}", measured, means, "Which of your operations do you pass `dim` to?")


def sums(student: Softmax) -> Finding | None:
    """Measure what a slice sums to."""
    x = draw((3, 4))
    answer, reversed_answer = student.rows(x), student.rows(x.flip(-1))
    if near(answer.sum(-1), 1.0):
        return None
    student.exponential = False
    if answer.isnan().any():
        student.stable = False
        measured = f"For logits of {span(x)} your answer has {int(answer.isnan().sum())} NaN."
        return finding("softmax-nan", measured, "", "Which of your operations gives NaN? Print what it gets.")
    measured = f"The slices of your answer sum to {span(answer.sum(-1))}; each should sum to 1."
    if near(answer.exp().sum(-1), 1.0):
        student.stable = False
        measured += f" Its numbers are {span(answer)}, and their exponentials sum to 1."
        question = "Can a probability be negative? What have you not applied yet?"
        return finding("softmax-log", measured, "This is the logarithm of softmax.", question)
    other = x.clone()
    other[:, 0] += 1
    if near(student.rows(other)[:, 1:], answer[:, 1:]):
        student.stable = False
        sigmoid = near(answer, torch.sigmoid(x))
        measured += " With one logit larger by 1, the probabilities of the others stay as they are."
        means = "Your answer is the sigmoid of each logit." if sigmoid else "You treat every logit by itself."
        question = "What do the probabilities of a slice share among themselves?"
        return finding("softmax-sigmoid" if sigmoid else "softmax-elementwise", measured, means, question)
    if not near(reversed_answer.sum(-1), answer.sum(-1)):
        measured += f" The same slices in reverse order sum to {span(reversed_answer.sum(-1))}."
        means = "What you divide by depends on the order of the logits."
        question = "When the maximum grows in the middle of a slice, what must happen to the sum so far?"
        return finding("softmax-order", measured, means, question)
    student.exponential = near(*_slopes(student, x))
    question = "What do you divide the exponentials by?"
    return finding("softmax-not-normalised", measured, "", question)


def slices(student: Softmax) -> Finding | None:
    """Check that a slice gets the same probabilities beside others as alone."""
    if student.alone or not student.one_axis:
        return None
    x = draw((3, 3, 3))
    for dim in student.working_dims():
        answer, alone = student(x, dim), student.rows(x.movedim(dim, -1).reshape(9, 3))
        alone = alone.view(3, 3, 3).movedim(-1, dim)
        if near(answer, alone):
            continue
        measured = (
            f"With dim={dim} on shape (3, 3, 3) a slice differs by up to {float((answer - alone).abs().max()):.3g} "
            "from the same slice in a tensor of two dimensions."
        )
        shifts = x - answer.log()
        for other in {0, 1, 2} - {dim % 3}:
            rest = shifts - x.amax(other, keepdim=True)
            if near(answer.sum(dim), 1.0) and near(rest, rest.mean(dim, keepdim=True)):
                means = f"Your maximum is taken along axis {other}, so that within a slice it is not one number."
                question = "Which number may be subtracted from all logits of a slice without changing the answer?"
                return finding("softmax-maximum-of-another-axis", measured, means, question)
        sums = f" It sums to {span(answer.sum(dim))} over axis {dim}."
        question = "Along which axis does broadcasting line up x.sum(dim) with x? And with keepdim=True?"
        return finding("softmax-slices-mixed", measured + sums, "", question)
    return None


def formula(student: Softmax) -> Finding | None:
    """Measure how the probabilities grow with the logits."""
    if not student.stable:
        return None
    x = draw((3, 4))
    if not (student.rows(x) > 0).all():
        student.exponential = student.stable = False
        measured = f"Logits of {span(x)} get probabilities of {span(student.rows(x))}; all should be larger than 0."
        return finding("softmax-other-function", measured, "", "Which function of the logits is always positive?")
    grown, logits = _slopes(student, x)
    factor = float((grown * logits).sum() / (logits * logits).sum())
    if not near(grown, factor * logits, 1e-2):
        student.exponential = student.stable = False
        rest = float((grown - factor * logits).norm() / grown.norm())
        measured = (
            f"The logarithms of your probabilities are not a multiple of the logits: {rest:.0%} is something else."
        )
        return finding("softmax-other-function", measured, "", "What do you take the exponential of?")
    if near(factor, 1.0):
        return None
    student.exponential = False
    base = math.exp(factor)
    measured = f"A logit that is larger by 1 gets {base:.4g} times the probability; it should get e = 2.718 times."
    if near(factor, -1.0):
        student.stable = False
        question = "Which logit should get the largest probability, and which does?"
        return finding("softmax-sign", measured, "The sign of the logits is reversed.", question)
    if near(base, 2.0):
        return finding("softmax-base-2", measured, "You take powers of 2, not of e.", "What is exp2(1)?")
    means = f"Your logits are multiplied by {factor:.4g}."
    return finding("softmax-factor", measured, means, "Where does that number come from?")


def _slopes(student: Softmax, x: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of the probabilities of rows, and the logits, both less their means."""
    grown = student.rows(x, x.dtype).log()
    if not grown.isfinite().all():
        raise NoAnswerError("the logarithms are not finite")
    return grown - grown.mean(-1, keepdim=True), x.double() - x.double().mean(-1, keepdim=True)


def shift(student: Softmax) -> Finding | None:
    """List the large logits that give NaN or only zeros."""
    if not student.stable:
        return None
    near_zero = [0.0, -1.0, -2.0, -3.0]
    high, low = [x + FAR for x in near_zero], [x - FAR for x in near_zero]
    tries = {
        "logits around 1000": [high],
        "logits around -1000": [low],
        "one slice around 0 and another around -1000": [near_zero, low],
        "logits of 0 and -1000 in one slice": [[0.0, -FAR, -FAR, -FAR]],
    }
    sums = {words: student.rows(rows).sum(-1).min() for words, rows in tries.items()}
    failed = {words: "is NaN" if total.isnan() else "sums to 0" for words, total in sums.items() if not total > 0.01}
    if not failed:
        return None
    student.stable = False
    measured = "; ".join(f"For {words} your answer {came}" for words, came in failed.items()) + "."
    at = [words in failed for words in tries]
    question = "What is exp(1000), and exp(-1000)? Which number may be subtracted from all logits of a slice?"
    id, means = {
        (True, True): ("no-shift", "You take the exponential without subtracting the maximum first."),
        (False, True): (
            "shift-magnitude",
            "Where all logits are low, all exponentials become 0: too much is subtracted, or nothing.",
        ),
        (True, False): ("shift-too-small", "What you subtract leaves large positive exponents."),
    }.get((at[0], at[1]), ("shift", ""))
    if at == [False, False, True, False]:
        id, means = "shift-whole-tensor", "You subtract the maximum of the whole tensor, not that of each slice."
        question = "What becomes of a slice around -1000 when you subtract the largest of all logits, 0?"
    elif at[3] and not at[0] and not at[1]:
        by_minimum = bool(student.rows([[0.0, -120.0]]).isnan().any())
        id, subtracted = ("shift-minimum", "minimum") if by_minimum else ("shift-mean", "mean")
        means = f"You subtract the {subtracted} of a slice, not its maximum."
        question = "After your subtraction, what is the largest number that exp can be given?"
    return finding(f"softmax-{id}", measured, means, question, touches=has_large_logits)


def clamp(student: Softmax) -> Finding | None:
    """Check that large logits are still told apart."""
    if not student.stable:
        return None
    tops = torch.tensor([10.0, 20, 40, 60, 80, 90, 100, 200, 500, 1e3, 5e3, 1e4, 1e5])
    for sign in (1, -1):
        rows = torch.stack((sign * tops, sign * tops - 2), -1)
        ratios = student.rows(rows)[:, 0] / student.rows(rows)[:, 1]
        if near(ratios[0], ratios[-1], 0.1) or ratios.isnan().any():
            continue
        student.stable = False
        top, ratio = next((t, r) for t, r in zip(tops, ratios, strict=True) if not near(r, ratios[0], 0.1))
        measured = (
            f"The logit {sign * top:g} gets {ratio:.4g} times the probability of {sign * top - 2:g} beside it; it "
            f"should be {ratios[0]:.4g} times, as for {sign * 10} and {sign * 10 - 2}."
        )
        question = "Is there a clamp, a minimum or a maximum on the logits?"
        return finding("softmax-clamp", measured, "Large logits are cut off.", question, touches=has_large_logits)
    return None


def minus_infinity(student: Softmax) -> Finding | None:
    """Read the probability of a logit of -inf beside finite ones."""
    if not student.stable:
        return None
    answer = student.rows([[0.0, -math.inf, 1.0], [0.0, 1.0, 2.0]])[0]
    others = student.rows([[0.0, 1.0], [0.0, 1.0]])[0]
    if answer[1] == 0 and near(answer[[0, 2]], others):
        return None
    came = ", ".join(f"{x:.4g}" for x in answer.tolist())
    right = f"{others[0]:.4g}, 0, {others[1]:.4g}"
    measured = f"The logits 0, -inf and 1 give {came}; they should give {right}."
    question = "Where does an infinity meet a 0 or another infinity in your code?"
    return finding("softmax-minus-infinity", measured, "", question, touches=has_infinite_logits)


def precision(student: Softmax) -> Finding | None:
    """Measure how many digits are right in float32 and in float64, and whether the sums are 1 to the last of them."""
    if not student.exponential:
        return None
    for dtype, bound, inside in ((torch.float32, 2e-5, "half"), (torch.float64, 1e-11, "float32")):
        grown, logits = _slopes(student, draw((5, 8)).to(dtype))
        error = float((grown - logits).abs().max())
        if error > bound and student.keeps(dtype):
            name = dtype_name(dtype)
            measured = f"For {name} logits your probabilities are off by a factor of up to 1 + {error:.1g}; "
            measured += f"{name} allows {torch.finfo(dtype).eps:.1g}."
            means = f"Somewhere inside, the numbers are {'half precision' if inside == 'half' else inside}."
            question = "Which line of your code returns a tensor with fewer digits than it was given?"
            touches = has_dtype(torch.float64) if inside == "float32" else has_dtype(torch.float32, torch.float64)
            return finding(f"softmax-{inside}-inside", measured, means, question, touches=touches)
    x = draw((5, 8)).double()
    missing = 1 - student.rows(x, torch.float64).sum(-1)
    if not student.keeps(torch.float64) or not 1e-12 < float(missing.abs().max()) < 1e-3:
        return None
    total = (x - x.amax(-1, keepdim=True)).exp().sum(-1)
    epsilon = total * missing / (1 - missing)
    measured = f"In float64 your slices sum to 1 - {span(missing)}; that should be 1 up to 1e-15."
    constant = near(epsilon, epsilon.mean(), 1e-2)
    means = f"Your denominator is larger than the sum by {span(epsilon)}." if constant else ""
    question = "Can the sum of the exponentials be 0, once the largest logit of each slice is 0?"
    return finding("softmax-epsilon", measured, means, question)


def half_precision(student: Softmax) -> Finding | None:
    """Check that float16 and bfloat16 are computed in float32 and rounded once."""
    errors = []
    for dtype in (torch.float16, torch.bfloat16):
        x = 3 * draw((5, 64)).to(dtype)
        wide = student.rows(x, torch.float32)
        error = float(((student.rows(x, dtype) - wide).abs() / wide).where(wide > 1e-3, 0.0).max())
        rounding = torch.finfo(dtype).eps / 2
        if error > 2 * rounding:
            errors.append(f"{error:.2g} in {str(dtype).removeprefix('torch.')} (rounding once: {rounding:.2g})")
    if not errors:
        return None
    measured = f"The largest relative error of your probabilities is {' and '.join(errors)}."
    means, question = "You compute in half precision.", "In which dtype are your exponentials, and their sum?"
    return finding("softmax-half-in-half", measured, means, question, touches=has_dtype(torch.float16, torch.bfloat16))


def has_large_logits(case: Case) -> bool:
    return bool((case.in_features.abs() > 50).any())


def has_infinite_logits(case: Case) -> bool:
    return bool(case.in_features.isinf().any())


def has_dtype(*dtypes: torch.dtype) -> Callable[[Case], bool]:
    return lambda case: case.dtype in dtypes
