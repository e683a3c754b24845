"""Examine what a student's attention does with the mask: which keys it hides, when, and with which number."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.attention_calls import Call, has_mask, hides_all
from cs336_kit.examination.attention_state import Attention, Sample, finding
from cs336_kit.examination.experiment import Finding, near, number, span

# Two sequences of four queries and four keys. Every query, and every key, has something to see under each mask, under
# its opposite and below its diagonal; every score is hidden in one of the two at most.
MASKS = torch.tensor(
    [
        [[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [0, 1, 1, 0]],
        [[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 1]],
    ]
).bool()
LOWER, DIAGONAL = torch.ones(4, 4).tril().bool(), torch.eye(4).bool()
# Scores at which a finite number in the place of -inf is found: each is further below 0 than the one before.
DEPTHS = torch.tensor([20, 50, 200, 1e3, 5e3, 2e4, 1e5, 1e6, 1e7, 1e8, 5e8, 2e9, 1e10, 1e12, 1e24, 1e36])


@dataclass(frozen=True)
class Reading:
    """Something that a mask may be taken for.

    Args:
        id: its name in findings.
        of: the mask that hides what the function hides.
        means: what it does to hide that.
        question: what a tutor asks.
    """

    id: str
    of: Callable[[Tensor], Tensor]
    means: str
    question: str


WHO = "Who decides which keys a query may attend to: attention, or whoever calls it?"
RIGHT = Reading("", lambda mask: mask, "", "")
READINGS = (
    RIGHT,
    Reading(
        "ignored",
        torch.ones_like,
        "The weights are the same as without a mask.",
        "Does your answer change when the mask changes?",
    ),
    Reading(
        "inverted",
        torch.logical_not,
        "You hide what the mask allows and keep what it forbids.",
        "What does True mean in the mask: may attend, or may not?",
    ),
    Reading(
        "transposed",
        lambda mask: mask.mT,
        "Query i attends to key j where mask[j, i] is True.",
        "Which axis of the mask is laid along the queries, and which along the keys?",
    ),
    Reading(
        "of-first-sequence",
        lambda mask: mask[:1].expand_as(mask),
        "The mask of the first sequence is used for all.",
        "May two sequences of one batch have different masks?",
    ),
    Reading("causal-too", lambda mask: mask & LOWER, "Later keys are hidden as well.", WHO),
    Reading("causal-instead", lambda mask: LOWER.expand_as(mask), "Later keys are hidden, and no others.", WHO),
    Reading(
        "diagonal",
        lambda mask: mask | DIAGONAL,
        "Query i attends to key i, whatever mask[i, i] is.",
        "May a query attend to itself when the mask says no?",
    ),
)


def without_mask(student: Attention) -> Finding | None:
    """Find out which keys each query sees without a mask."""
    if student.dropped or "without-mask" in student.failed:
        return None
    Q, K, _ = Call((2,), 4, 4, 4, 4).tensors()
    ask = partial(student.raw, Q, K, torch.eye(4).expand(2, 4, 4))
    without, free = ask(None), student.weights(Q, K)
    causal = bool(((without == 0) == ~LOWER).all())
    if student.free is not None:
        if near(without, free):
            return None
        causal = near(without, ask(LOWER))
    elif not causal:
        return None
    question, touches = "Which keys may a query attend to when there is no mask?", lambda case: case.mask is None
    if causal:
        measured = f"Without a mask, query 0 of 4 gives its keys the weights {_listed(without[0, 0])}"
        measured += ", as with a causal mask." if student.free is not None else "."
        return finding("attention-causal-without-mask", measured, "Later keys are hidden.", question, touches=touches)
    measured = (
        f"Without a mask, weights are up to {float((without - free).abs().max()):.3g} away from those with a mask "
    )
    return finding("attention-without-mask", f"{measured}that hides nothing.", "", question, touches=touches)


def hidden_keys(student: Attention) -> list[Finding]:
    """List the keys that keep weight under a mask, and say what is left of the scores that should be hidden."""
    given = MASKS[0] if "mask-per-batch" in student.failed else MASKS
    if student.axis == (0,):
        given = torch.stack((MASKS[0], ~MASKS[0]))  # so that every slice of the softmax has something to see
    sample = student.square(given)
    weights = sample.weights
    student.hides = False
    if weights.isnan().any():
        count = f"{int(weights.isnan().sum())} of {weights.numel()}"
        measured = f"Under a mask that leaves every query some key, {count} weights are NaN."
        found = finding("attention-mask-nan", measured, "", "What is 0 times infinity?", touches=has_mask)
        return [found, *misread_by_nan(student)]
    factor, _ = student.fit(student.square(), student.axis)
    scores = factor * student.products(sample)
    for reading in READINGS:
        kept = Kept.of(sample, reading.of(given).expand_as(weights), student.axis, scores)
        if kept:
            break
    else:
        hidden = weights[~given.expand_as(weights)]
        if not (hidden.abs() > 1e-6).any():
            return []
        measured = f"Keys that the mask hides get weights of {span(hidden)}; each should get 0."
        question = "What becomes of a score where the mask is False?"
        return [finding("attention-mask-other", measured, "", question, touches=has_mask)]
    found = []
    if reading.id == "ignored" and (on_values := hidden_from_all(student)):
        return [on_values]
    if reading is not RIGHT:
        measured = _first_wrong_row(given.expand_as(weights), reading.of(given).expand_as(weights), weights)
        id = f"attention-mask-{reading.id}"
        found.append(finding(id, measured, reading.means, reading.question, touches=has_mask))
    student.hides = reading.id not in ("ignored", "causal-instead", "diagonal")
    if reading.id in ("inverted", "transposed"):
        student.read_as = reading.of
    student.added = kept.added
    if kept.added:
        found.append(kept.finding())
    free = student.square().weights
    hidden = (weights == 0) & (free != 0)
    if student.hides and not student.pointwise and not kept.added and near(weights, free.where(~hidden, 0.0)):
        total, free = weights.sum(student.axis), free.sum(student.axis)
        student.hides = False
        measured = f"Under a mask the weights sum to {span(total)}, and without one to {span(free)}."
        means = "Weights are set to 0 after the softmax."
        question = "When must a key be left out for the weights of the others to sum to 1?"
        found.append(finding("attention-mask-after-softmax", measured, means, question, touches=has_mask))
    return found


def misread_by_nan(student: Attention) -> list[Finding]:
    """Find how the mask is read where a query gets NaN if one of its keys is hidden, or zeros if all of them are."""
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    if student.square(mask).weights.isnan().any():
        return []
    mask[0, 0, 1] = mask[1, 2, 3] = False
    weights = student.square(mask).weights
    hit = weights.isnan().any(-1) | (weights == 0).all(-1)
    for reading in READINGS:
        if not torch.equal((~reading.of(mask)).any(-1), hit):
            continue
        if reading is RIGHT:
            return []
        rows = " and ".join(f"query {query} of sequence {sequence}" for sequence, query in hit.nonzero().tolist())
        measured = (
            "A mask that hides one key from query 0 of sequence 0 and one from query 2 of sequence 1 gives NaN or "
            f"zeros to {'every query' if hit.all() else rows if hit.any() else 'no query'}."
        )
        return [finding(f"attention-mask-{reading.id}", measured, reading.means, reading.question, touches=has_mask)]
    return []


def _first_wrong_row(mask: Tensor, seen: Tensor, weights: Tensor) -> str:
    sequence, query = (mask != seen).any(-1).nonzero()[0].tolist()
    keys = " and ".join(str(k) for k in mask[sequence, query].nonzero().flatten().tolist())
    return (
        f"The mask lets query {query} of sequence {sequence} attend to the keys {keys} of 4; its weights are "
        f"{_listed(weights[sequence, query])}."
    )


@dataclass(frozen=True)
class Kept:
    """Hidden scores as the code leaves them: gone, replaced by one number (a "fill"), or with one added (a "bias")."""

    added: str
    number: float
    weights: Tensor

    @classmethod
    def of(cls, sample: Sample, mask: Tensor, axis: tuple[int, ...], scores: Tensor) -> "Kept | None":
        """None if the weights of a sample are not what this mask leaves."""
        offsets = sample.scores() - scores
        offsets = offsets - offsets.where(mask, 0.0).sum(axis, keepdim=True) / mask.sum(axis, keepdim=True)
        if not near(offsets[mask] + 1, 1.0, 1e-2):
            return None
        hidden, weights = offsets[~mask], sample.weights[~mask]
        if not len(hidden) or bool((hidden == -math.inf).all()):
            return cls("", 0.0, weights)
        filled = hidden + scores.expand_as(offsets)[~mask]
        if filled.isfinite().all() and float(filled.std()) < 1e-2:
            return cls("fill", round(float(filled.mean()), 3), weights)
        if hidden.isfinite().all() and float(hidden.std()) < 1e-2 < float(hidden.mean().abs()):
            return cls("bias", round(float(hidden.mean()), 3), weights)
        return None

    def finding(self) -> Finding:
        measured = f"Keys that the mask hides get weights of {span(self.weights)}; each should get 0. "
        if self.added == "bias":
            way = "lower" if self.number < 0 else "higher"
            measured += f"Relative to the others, their scores are {abs(self.number):g} {way} than without a mask."
            means = "The mask is added to the scores."
            question = "What must be added to a score for its weight to become exactly 0?"
        else:
            measured += f"Their scores are all {self.number + 0.0:g}."
            means = "Hidden scores are multiplied by 0, or replaced by it." if not self.number else ""
            question = "Which number x gives exp(x) = 0 exactly, whatever the other scores are?"
        fill = "zero" if self.added == "fill" and not self.number else self.added
        return finding(f"attention-mask-{fill}", measured, means, question, touches=has_mask)


def hidden_from_all(student: Attention) -> Finding | None:
    """Test whether a mask that seems to be ignored still hides a key that no query may see."""
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[:, 3] = False
    weights = student.square(mask).weights
    if not near(weights[..., 3] + 1, 1.0) or near(student.square().weights, weights):
        return None
    measured = "A key loses its weight only when no query at all may see it, and the others do not make up for it."
    question = "The mask says something about each query and each key. Which tensor has both axes?"
    return finding("attention-mask-on-values", measured, "The mask is applied to V.", question, touches=has_mask)


def mask_shapes(student: Attention) -> Finding | None:
    """Check that a mask with axes of size 1 has the same effect as when it is written out."""
    if not student.hides or student.axis != (-1,) or not student.usual.batch or "padding" in student.failed:
        return None
    Q, K, V = Call((4,), 4, 4, 4, 4).tensors()
    for shape in ((4, 1, 4), (1, 4, 4), (4, 4), (4, 4, 1)):
        mask = MASKS[0].view(shape)
        whole = (mask if mask.ndim > 2 else mask.unsqueeze(0)).expand(4, 4, 4)
        came, right = student.answer(Q, K, V, mask), student.answer(Q, K, V, whole.clone())
        seen = whole.any(-1)
        if not near(came[seen], right[seen]):
            measured = (
                f"With four sequences of four positions, a mask of shape {shape} and the same mask written out as "
                f"(4, 4, 4) give answers that differ by up to {float((came - right)[seen].abs().max()):.3g}."
            )
            question = "Name the axes of the mask. What happens to one of size 1 in your code?"
            return finding("attention-mask-broadcast", measured, "", question, touches=has_mask)
    return None


def finite_fill(student: Attention) -> Finding | None:
    """From which score on a hidden key beats the visible one: with all scores as low, and then with its own as high."""
    if not student.hides or student.added or student.pointwise:
        return None
    n = len(DEPTHS)
    mask = torch.zeros(n, n, dtype=torch.bool)
    mask[:, 0] = True
    for kind, visible, hidden in (("bias", 0.0, 1.0), ("fill", -1.0, -1.0)):
        pattern = torch.full((n,), hidden)
        pattern[0] = visible
        depth, left = 1.0, 0.0
        between = DEPTHS
        for _ in range(4):
            weights = student.levels(between.unsqueeze(-1) * pattern, mask)
            hidden_weights = weights[:, 1:].sum(-1)
            over = (hidden_weights > 0.5).nonzero()
            if kind == "bias" and not len(over) and not near(weights[:, 0], 1.0):
                return _renormalised(student, weights[:, 0], between)
            if weights.isnan().any() or not len(over):
                break
            at = int(over[0])
            depth, left = float(between[at]), float(hidden_weights[at])
            between = torch.logspace(math.log10(between[at - 1] if at else 1.0), math.log10(depth), n)
        if left:
            student.added = kind
            if depth < 2:  # which the first look at the mask would have shown
                return _unsteady(depth, left)
            return _finite(kind, depth, left, depth - (math.log(left / (1 - left) / (n - 1)) if left < 0.999 else 0.0))
    return None


def _unsteady(depth: float, left: float) -> Finding:
    measured = (
        f"Of two masks the first hides its keys and the second does not: keys whose scores are {number(depth)} away "
        f"from the visible one get a weight of {left:.3g}."
    )
    question = "What is left over from an earlier call, or depends on the shape of the mask?"
    return finding("attention-mask-unsteady", measured, "", question, touches=has_mask)


def _finite(kind: str, depth: float, left: float, distance: float) -> Finding:
    if kind == "fill":
        measured = f"When all scores of a query are {number(-depth)}, its hidden keys get a weight of {left:.3g}"
        means = f"Hidden scores are replaced by about {number(-distance)}, not by -inf."
    else:
        measured = f"When hidden scores are {number(depth)} above the visible one, they get a weight of {left:.3g}"
        means = f"About {number(distance)} is subtracted from hidden scores, not infinity."

    def touches(case: Case) -> bool:
        scores = case.Q.double() @ case.K.double().mT / math.sqrt(case.Q.shape[-1])
        return has_mask(case) and (hides_all(case) or float(scores.max() - scores.min()) > depth / 10)

    question = "Which number x gives exp(x) = 0 exactly, whatever the other scores are?"
    return finding(f"attention-mask-{kind}-finite", f"{measured}; it should be 0.", means, question, touches=touches)


def _renormalised(student: Attention, visible: Tensor, depths: Tensor) -> Finding:
    student.hides = False
    lost = depths[~((visible - 1).abs() < 1e-3)][0]
    came = _listed(visible[depths == lost])
    measured = (
        f"When the scores of hidden keys are {number(float(lost))} above that of the only visible one, the visible one "
        f"gets the weight {came}; it should be 1."
    )
    overflows = visible[depths == lost].isnan().any()
    means = "Hidden keys still take part in the softmax."
    if overflows:
        means = "The exponential of a hidden score is taken, and overflows."
    question = "What is left of a row when the only large score is one that the mask forbids?"
    return finding("attention-mask-renormalised", measured, means, question, touches=has_mask)


def nothing_to_see(student: Attention) -> Finding | None:
    """Read the answer to a query that may not attend to any key."""
    if not student.hides or student.added:
        return None
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    row = student.square(mask).weights[0, 1]
    if near(row + 1, 1.0):
        return None
    question = "What is the softmax of scores that are all -inf? What should such a query get?"
    measured = f"A query that may attend to nothing gives its keys the weights {_listed(row)}; it should get zeros."
    if row.isnan().any():
        student.hides = False
        return finding("attention-nothing-nan", measured, "", question, touches=hides_all)
    if near(row, row.mean()):
        means = "All its scores are the same number: hidden scores have become a finite one."
        return finding("attention-nothing-mean", measured, means, question, touches=hides_all)
    return finding("attention-nothing-other", measured, "", question, touches=hides_all)


def gradients_with_nothing(student: Attention) -> Finding | None:
    """Check that no gradient is NaN where a query may not attend to any key."""
    if not student.hides or not student.usual.batch:
        return None
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    arguments: tuple[Any, ...] = (*Call((2,), 4, 4, 4, 4).tensors(), student.read_as(mask) if student.read_as else mask)
    answer, slopes = student.ask.slopes(*arguments)
    if not answer.isfinite().all():
        return None
    wrong = [name for name, slope in zip("QKV", slopes, strict=True) if slope is not None and slope.isnan().any()]
    if not wrong:
        return None
    measured = f"Where a query may attend to nothing, the gradient of {' and '.join(wrong)} is NaN."
    question = "What could the softmax of such a row be given instead of nothing but -inf, so that NaN never arises?"
    means = "Replacing NaN in the answer comes too late for the gradient."

    def touches(case: Case) -> bool:
        return hides_all(case) and bool(case.gradients)

    return finding("attention-nothing-gradient", measured, means, question, touches=touches)


def _listed(row: Tensor) -> str:
    return ", ".join(f"{x:.3g}" for x in row.tolist()).replace("nan", "NaN")
