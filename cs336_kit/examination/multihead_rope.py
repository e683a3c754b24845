"""Asking attention with RoPE what is turned, where, and at which positions.

The score of a unit query and a unit key is one entry of the rotation between their positions. Read off for all of them
it is taken apart as in `rotation.py`. Positions that are all 0 leave everything as it is without RoPE.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination import rotation
from cs336_kit.examination.experiment import Finding, NoAnswerError
from cs336_kit.examination.heads import D_HEAD, D_MODEL, HEADS, TINY, TOKENS, Heads, Weights, normal, places
from cs336_kit.examination.projections import EYE
from cs336_kit.examination.rotation import THETA, Exponents, Rotation, beyond_zero, same
from cs336_kit.examination.scores import difference, known_layout, query_and_keys
from cs336_kit.examination.words import listed, number, numbers

MAX_SEQ_LEN = 50
SIZE = 2.0  # of the entries of W_Q and W_K
RIGHT = ("right", "right")
POSITIONS = 3  # that are read off

# What θ^(a i + b) says, by a d_head and b d_head, as far as two pairs can tell.
EXPONENTS: Exponents = {
    **{known: rotation.EXPONENTS[known] for known in ((-1, 0), (2, 0), (-2, -2))},
    (-0.7, 0): ("exponent-d_model", "Your exponent divides by d_model, not by d_head."),
}

Finds = Finding | None


@dataclass
class Turning:
    """The effect of RoPE inside the student's attention, and what was found out about it."""

    heads: Heads
    turns: bool = False  # queries and keys, by the difference of their positions
    same_in_all: bool = False  # heads
    rotations: dict[tuple[int, int, float], Tensor] = field(default_factory=dict)

    def answer(self, weights: Weights, x: Tensor, positions: Tensor | None, theta: float = THETA) -> Tensor:
        if self.heads.needs_batch and x.ndim == 2:
            return self.answer(weights, x.unsqueeze(0), positions, theta)[0]
        sizes = (D_MODEL, HEADS, MAX_SEQ_LEN, theta)
        given = () if positions is None else (positions,)
        return self.heads.ask.tensor(x.shape, *sizes, *self.heads.correct(weights), x, *given)

    def between(self, query_at: int, key_at: int, theta: float = THETA) -> Tensor:
        """The rotation between two positions (head, component of the key, component of the query), asked once."""
        asked = query_at, key_at, theta
        if asked not in self.rotations:
            self.rotations[asked] = self._between(*asked)
        return self.rotations[asked]

    def _between(self, query_at: int, key_at: int, theta: float) -> Tensor:
        (query, key, other), (split, join) = self.order(), self.heads.layout or RIGHT
        at = torch.full((3,), key_at)
        at[query] = query_at
        units = torch.eye(D_HEAD)
        x = torch.zeros(D_HEAD, D_HEAD, 3, D_MODEL)  # (component of the key, component of the query, token, ...)
        x[:, :, query, :D_HEAD], x[:, :, key, :D_HEAD] = units, units.unsqueeze(1)
        x[:, :, key, D_HEAD], x[:, :, other, D_HEAD + 1] = 1.0, 1.0
        tile = torch.zeros(D_MODEL, D_MODEL)
        tile[places(split, 1).flatten(), torch.arange(D_MODEL) % D_HEAD] = SIZE
        weights = []
        for reader in (D_HEAD, D_HEAD + 1):
            v = torch.zeros(D_MODEL, D_MODEL)
            v[:, reader] = 1.0
            came = self.answers(Weights(tile, tile, v, EYE), x.flatten(0, 1), at, theta)
            own = came.flatten(1)[:, places(join, 3)][:, :, query]  # (question, head, component)
            weights.append(own.norm(dim=-1))  # which RoPE on the values would leave
        scores = (weights[0] / weights[1]).log() / SIZE**2 / (self.heads.scale or D_HEAD**-0.5)
        if not scores.isfinite().all():
            raise NoAnswerError("the weights are not positive")
        return scores.T.unflatten(-1, (D_HEAD, D_HEAD))

    def order(self) -> tuple[int, int, int]:
        """Of three tokens, one that sees the other two, and these."""
        heads = self.heads
        if heads.layout is None and heads.crashed and not heads.values_transposed:
            return 2, 0, 1  # as far as is known
        if heads.head_of_row and heads.head_of_row(D_MODEL - 1) == 0:
            raise NoAnswerError("there is one head")
        known_layout(heads)
        return query_and_keys(heads)

    def answers(self, weights: Weights, x: Tensor, at: Tensor, theta: float = THETA) -> Tensor:
        if self.heads.batched:
            return self.answer(weights, x, at, theta)
        return torch.stack([self.answer(weights, tokens, at, theta) for tokens in x])

    def rotation(self) -> Rotation:
        def read(theta: float) -> Tensor:
            if not self.same_in_all or not self.heads.batched:
                raise NoAnswerError("it would take too long")
            return torch.stack([self.between(p, 0, theta)[0] for p in range(POSITIONS)])

        return Rotation(read, D_HEAD, "multihead-rope", EXPONENTS)

    def finding(self, id: str, measured: str, means: str, question: str) -> Finding:
        return Finding(f"multihead-rope-{id}", measured, means, question, self.heads.section, beyond_zero)


WHERE = "Which of Q, K and V does RoPE apply to, and at what point: before the split into heads, after it, or later?"


def at_zero(turning: Turning) -> Finds:
    """Check that nothing is turned when all tokens are at position 0; otherwise scores cannot be read."""
    heads = turning.heads
    split, _ = known_layout(heads)
    first, second, one, other = places(split, 1)[:2, 0, :2].flatten().tolist()
    x = torch.zeros(3, D_MODEL)
    x[0, first], x[1, [second, one]], x[2, other] = 1.0, 1.0, 1.0
    came = float(difference(heads, SIZE * EYE, SIZE * EYE, x)[0])
    if abs(came) < TINY:
        return None
    heads.scores_readable = False
    return turning.finding(
        "positions-ignored",
        f"With all tokens at position 0, the score of a query (2, 0, ...) and a key (0, 2, ...) is {number(came)}; "
        "nothing is turned at position 0, so it should be 0.",
        "The angles come from the row numbers, not from `token_positions` alone.",
        "Shift all token positions by 5, then only the last one. Which of the two should change your answer?",
    )


def used(turning: Turning) -> Finds:
    """Check that queries and keys are turned, and only by the difference of their positions."""
    still, apart, level, back = (turning.between(*at)[0] for at in ((0, 0), (2, 0), (2, 2), (0, 2)))
    eye = torch.eye(D_HEAD)
    if same(torch.stack((still, apart, level, back)), eye):
        return turning.finding(
            "missing",
            "The product of a query (1, 0, ...) and a key (1, 0, ...) is 1 wherever they are; with the query at "
            f"position 2 and the key at 0 it should be {number(math.cos(2))}.",
            "The queries and keys are not turned, or all tokens are turned alike.",
            WHERE,
        )
    if not turning.heads.crashed and not same(level, eye) and (same(back, eye) or same(apart, eye)):
        turned, left = ("queries", "keys") if same(back, eye) else ("keys", "queries")
        return turning.finding(
            f"on-{turned}-only",
            f"The product of a query (1, 0, ...) and a key (1, 0, ...), both at position 2, is {number(level[0, 0])}; "
            f"it should be 1, since both are in the same place. The position of the {left} makes no difference.",
            f"You turn the {turned} and not the {left}.",
            WHERE,
        )
    turning.turns = not turning.heads.crashed  # else little is known of what was read
    return None


def each_head(turning: Turning) -> Finds:
    """Check that all heads are turned alike."""
    if not turning.turns:
        raise NoAnswerError("nothing is turned")
    apart = turning.between(1, 0)
    angles = torch.atan2(apart[:, 1::2, 0::2].diagonal(dim1=1, dim2=2), apart[:, 0::2, 0::2].diagonal(dim1=1, dim2=2))
    if same(apart, apart[:1]):
        turning.same_in_all = True
        return None
    over_model = THETA ** (-torch.arange(0, D_MODEL, 2, dtype=torch.double) / D_MODEL)
    before = same(angles.flatten().abs(), over_model)
    return turning.finding(
        "before-split" if before else "differs-by-head",
        f"At position 1 the pairs of head 0 turn by {numbers(angles[0])}, those of head 1 by {numbers(angles[1])}; "
        f"both should turn by {numbers(THETA ** (-2 * torch.arange(2.0) / D_HEAD))}.",
        "You turn the whole of d_model before the split into heads." if before else "",
        WHERE,
    )


def values(turning: Turning) -> Finds:
    """Check that nothing other than queries and keys is turned."""
    if turning.heads.crashed:
        raise NoAnswerError("it works for few lengths")
    query, key, _ = turning.order()
    x = torch.zeros(3, D_MODEL)
    x[key, ::2] = 1.0
    small = TINY * EYE
    asked, together = Weights(small, small, EYE, EYE), torch.ones(3, dtype=torch.long)
    came = []
    for token, position in ((query, 2), (key, 0)):  # so that a causal mask by positions hides no key
        at = together.clone()
        at[token] = position
        came.append(turning.answer(asked, x, at)[query])
    right = turning.answer(asked, x, together)[query]
    if right.abs().max() < TINY or same(torch.stack(came), right):
        return None
    afterwards = not same(came[0], right)
    turned = came[0] if afterwards else came[1]
    who = "the token that attends is at position 2" if afterwards else "the token that is attended to is at position 0"
    return turning.finding(
        "after-attention" if afterwards else "on-values",
        f"With all scores equal, an answer that begins with {numbers(right[:2])} where all tokens are at position 1 "
        f"begins with {numbers(turned[:2])} where {who}; it should be the same.",
        "You turn the output of attention, not the queries and keys that go into it."
        if afterwards
        else "The values are turned.",
        WHERE,
    )


def default_positions(turning: Turning) -> Finds:
    weights, x = Weights(*normal(4, D_MODEL, D_MODEL).unbind()), normal(TOKENS, D_MODEL)
    given, left_out = turning.answer(weights, x, torch.arange(TOKENS)), turning.answer(weights, x, None)
    if same(given, left_out):
        return None
    nowhere = same(turning.answer(weights, x, torch.zeros(TOKENS, dtype=torch.long)), left_out)
    return Finding(
        "multihead-rope-default-positions",
        f"Without `token_positions` the answers differ by up to {number((given - left_out).abs().max())} from those at "
        f"positions 0 to {TOKENS - 1}; they should be the same.",
        "The answer is the one with all tokens at position 0." if nowhere else "",
        "What should the positions be when none are given?",
        turning.heads.section,
        has_default_positions,
    )


def batch_positions(turning: Turning) -> Finds:
    """Check that each sequence of a batch has its own positions, which all heads share."""
    if not turning.heads.batched:
        raise NoAnswerError("sequences disturb each other")
    weights, x = Weights(*(normal(4, D_MODEL, D_MODEL) / 2).unbind()), normal(HEADS, TOKENS, D_MODEL)
    weights = weights._replace(o=EYE)
    at = torch.tensor([[0, 1, 2, 3, 4], [7, 1, 5, 0, 9], [2, 2, 8, 3, 6]])
    came = turning.answer(weights, x, at)
    own = torch.stack([turning.answer(weights, one, row) for one, row in zip(x, at, strict=True)])
    if same(came, own):
        return None

    def by_head(answers: Tensor) -> Tensor:
        return answers.flatten(-2)[..., places((turning.heads.layout or RIGHT)[1])]

    alone = torch.stack([turning.answer(weights, x, row) for row in at], 1)  # (sequence, positions, ...)
    id, means = "batch-positions", ""
    if same(came, alone[:, 0]):
        id, means = "first-sequence", "You use the positions of the first sequence for all of them."
    elif same(by_head(came), torch.stack([by_head(alone[:, j])[:, j] for j in range(HEADS)], 1)):
        id, means = (
            "positions-by-head",
            "Head 0 gets the positions of sequence 0, head 1 those of sequence 1, and so on.",
        )
    differ = [b for b in range(HEADS) if not same(came[b], own[b])]
    return Finding(
        f"multihead-rope-{id}",
        f"With 3 heads and 3 sequences, each at its own positions, the answers to sequences {listed(differ)} are not "
        "those that they get alone at these positions.",
        means,
        "Queries have the axes (batch, head, sequence, d). Which axes do the positions have, and which is missing?",
        turning.heads.section,
        has_own_positions,
    )


def has_default_positions(case: Case) -> bool:
    return "theta" in case.inputs and case.token_positions is None


def has_own_positions(case: Case) -> bool:
    """Say whether each sequence has its own positions."""
    positions = case.inputs.get("token_positions")
    return positions is not None and positions.ndim > 1
