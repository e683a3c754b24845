"""Asking RoPE how it turns, and at which position it turns each vector.

The rotation is taken apart in `rotation.py`; longer inputs then show which of its positions each vector was given.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination import rotation
from cs336_kit.examination.contract import Contract
from cs336_kit.examination.crash import Variation, try_calls
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError, by_name, examine
from cs336_kit.examination.rotation import POSITIONS, SECTION, THETA, Finds, Rotation, same
from cs336_kit.examination.words import listed, numbers

NAMES = ("d_k", "theta", "max_seq_len", "in_query_or_key", "token_positions")
D_K = 8
MAX_SEQ_LEN = 50


def examine_rope(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_rope`, the most fundamental first."""
    rope = _Rope(Ask(by_name(run, NAMES)))
    apart = (rotation.skipped, rotation.pairs, rotation.order, rotation.kind, rotation.start, rotation.direction)
    apart += (rotation.frequency, rotation.precision)
    words = "for x of shape (3, 4, 8) and token_positions of shape (4,)"
    calls = try_calls(rope.ask, "rope", SECTION, Call(), words, VARIATIONS)
    usual = calls.works or Call()
    contract = Contract(rope.ask, "rope", SECTION, NAMES, usual.arguments, usual.shape, (torch.float32,))
    experiments = (
        *(partial(experiment, rope.rotation) for experiment in apart),
        *(partial(experiment, rope) for experiment in (_positions, _batches, _table, _far)),
        contract.dtype,
        contract.inputs_left_alone,
        contract.gradients,
    )
    return [*calls.findings, *examine(experiments)]


@dataclass
class _Rope:
    """The student's function, and what was found out about it."""

    ask: Ask
    needs_batch: bool = False  # vectors without a batch are not answered
    follows_positions: bool = False

    def __post_init__(self) -> None:
        self.rotation = Rotation(self.read, D_K)

    def turn(self, x: Tensor, positions: Tensor, theta: float = THETA, max_seq_len: int = MAX_SEQ_LEN) -> Tensor:
        if self.needs_batch and x.ndim == 2:
            return self.turn(x.unsqueeze(0), positions, theta, max_seq_len)[0]
        return self.ask.tensor(x.shape, x.shape[-1], theta, max_seq_len, x, positions)

    def read(self, theta: float) -> Tensor:
        """The rotation at each position: of the rows of a sequence, or of single rows if those are all turned alike."""
        order, units = torch.arange(POSITIONS), torch.eye(D_K)
        try:
            self.turn(units[:1], order[:1])
        except NoAnswerError:
            self.needs_batch = True
        maps = torch.stack([self.turn(unit.expand(POSITIONS, D_K), order, theta) for unit in units], -1)
        if not same(maps, maps[:1]):
            return maps
        alone = [[self.turn(unit.unsqueeze(0), p.unsqueeze(0), theta)[0] for unit in units] for p in order]
        return torch.stack([torch.stack(columns, -1) for columns in alone])

    def turned_as_at(self, came: Tensor, x: Tensor) -> Tensor:
        """For each vector of `came`, the position at which `x` becomes it; -1 where no position does that."""
        candidates = torch.einsum("poi,...i->...po", self.rotation.known_maps(), x.double())
        nearest = (candidates - came.unsqueeze(-2)).abs().amax(-1).min(-1)
        return nearest.indices.where(nearest.values < rotation.CLOSE, -1)


def _vectors(*shape: int) -> Tensor:
    return torch.randn(*shape, D_K, generator=torch.Generator().manual_seed(5))


@dataclass(frozen=True)
class Call:
    """The sizes of a call; with `own`, each sequence of the batch has positions of its own."""

    batch: tuple[int, ...] = (3,)
    length: int = 4
    own: bool = False

    @property
    def arguments(self) -> tuple[Any, ...]:
        return D_K, THETA, MAX_SEQ_LEN, self.x, self.positions

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    @property
    def x(self) -> Tensor:
        return _vectors(*self.batch, self.length)

    @property
    def positions(self) -> Tensor:
        if not self.own:
            return torch.tensor([4, 0, 5, 1])[: self.length]
        return torch.tensor([[4, 0, 5, 1], [2, 3, 0, 4]]).view(2, *(1 for _ in self.batch[1:]), 4)

    def is_like(self, case: Case) -> bool:
        return case.in_query_or_key.ndim >= self.x.ndim and case.token_positions.ndim >= self.positions.ndim


BATCHES = (Call(), Call((2, 3)), Call((2,), own=True), Call((2, 3), own=True))


def _variation(id: str, call: Call, question: str) -> Variation[Call]:
    words = f"for x of shape {call.shape} and token_positions of shape {tuple(call.positions.shape)}"
    return Variation(id, words, lambda _: call, question, call.is_like)


LEADING = "Which two axes does a rotation need? Should it matter how many come before them?"
LINE_UP = "How do the axes of `token_positions` line up with those of x?"
VARIATIONS = (
    _variation("one-vector", Call((), 1), LEADING),
    _variation("2d", Call(()), LEADING),
    _variation("4d", Call((2, 3)), LEADING),
    _variation("own-positions", Call((2,), own=True), LINE_UP),
    _variation("4d-own-positions", Call((2, 3), own=True), LINE_UP),
)


def _positions(rope: _Rope) -> Finds:
    at, x = torch.tensor([2, 0, 5, 1]), _vectors(4)
    came = rope.turn(x, at)
    used = rope.turned_as_at(came, x)
    if torch.equal(used, at):
        rope.follows_positions = True
        return None
    row, id, means = torch.arange(4), "rope-positions", ""
    known = {
        "rope-row-number": (row, "You use the row number in place of the position."),
        "rope-from-first": (at[0] + row, "You count on from the first position; positions may skip and go back."),
        "rope-last-position": (at[-1].expand(4), "Every row is turned by the last position."),
        "rope-first-position": (at[0].expand(4), "Every row is turned by the first position."),
        "rope-sorted": (at.sort().values, "The positions are sorted first."),
    }
    for name, (positions, why) in known.items():
        if torch.equal(positions, used):
            id, means = name, why
    measured = f"Four rows at positions {listed(at.tolist())} are turned as at positions {_shown(used)}."
    sources = torch.stack([rope.turned_as_at(came, other.expand_as(x)) for other in x]).clamp(min=-1)  # (row of x, row)
    if (used < 0).any() and (sources >= 0).any(0).all():
        id, means = "rope-rows-moved", "`token_positions` also pick the rows of x."
        measured = (
            f"Four rows at positions {listed(at.tolist())} come back as rows {listed(sources.argmax(0).tolist())}."
        )
    return Finding(
        id=id,
        measured=measured,
        means=means,
        question="Does your answer change when `token_positions` change? It should follow them, not the row number.",
        section=SECTION,
    )


def _batches(rope: _Rope) -> Finds:
    if not rope.follows_positions:
        raise NoAnswerError("positions are used otherwise")
    for call in BATCHES:
        x, positions = call.x, call.positions
        try:
            used = rope.turned_as_at(rope.turn(x, positions), x)
        except NoAnswerError:
            continue
        wanted = positions.expand(used.shape)
        if torch.equal(used, wanted):
            continue
        place = tuple((used != wanted).any(-1).nonzero()[0].tolist())
        first = positions.ndim > 1 and torch.equal(used, positions[:1].expand(used.shape))
        return Finding(
            id="rope-first-sequence" if first else "rope-batch",
            measured=f"With x of shape {tuple(x.shape)} and token_positions of shape {tuple(positions.shape)}, the "
            f"vectors of x[{', '.join(map(str, place))}] have the positions {listed(wanted[place].tolist())}, and are "
            f"turned as at positions {_shown(used[place])}.",
            means="You use the positions of the first sequence for all of them." if first else "",
            question=LINE_UP,
            section=SECTION,
            touches=call.is_like,
        )
    return None


def _shown(used: Tensor) -> str:
    return listed(str(p) if p >= 0 else "one unknown" for p in used.tolist())


def _table(rope: _Rope) -> Finds:
    x, last, short = _vectors(1), torch.tensor([3]), 4
    right = rope.turn(x, last)
    try:
        if same(rope.turn(x, last, max_seq_len=short), right):
            return None
        said = "a vector at position 3 is turned differently than with max_seq_len = 50"
    except NoAnswerError as error:
        said = f"a vector at position 3 fails: {str(error).splitlines()[0]}"
    return Finding(
        id="rope-table-length",
        measured=f"With max_seq_len = 4, {said}. Positions 0 to max_seq_len - 1 should work.",
        means="The table is too short.",
        question="How many positions are there from 0 to max_seq_len - 1, and how many rows does your table have?",
        section=SECTION,
        touches=lambda case: bool((case.token_positions == case.max_seq_len - 1).any()),
    )


def _far(rope: _Rope) -> Finds:
    if not (rope.rotation.is_right and rope.follows_positions and rope.rotation.places):
        raise NoAnswerError("the angles are others")
    unit = torch.eye(D_K)[rope.rotation.known_pairs()[0][0]].unsqueeze(0)
    came = rope.turn(unit, torch.tensor([999]), max_seq_len=1000)[0, list(rope.rotation.places[0])]
    right = torch.tensor([math.cos(999), math.sin(999)])
    if same(came.abs().sort().values, right.abs().sort().values):  # signs and places are another finding
        return None
    return Finding(
        id="rope-far",
        measured=f"At position 999, pair 0 takes (1, 0) to {numbers(came)}; it should take it to {numbers(right)}. "
        "At positions 0 to 5 its angles are right.",
        means="Large positions lose their last digits, or are cut off.",
        question="In which dtype are your positions and angles when they are multiplied?",
        section=SECTION,
        touches=lambda case: bool((case.token_positions > POSITIONS).any()),
    )
