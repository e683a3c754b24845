"""Examine a student's RoPE: usual calls, and what is measured of answers that no known mistake explains."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import listed, near
from cs336_kit.examination.calls import Variation
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Ask, Finding, Finds, about, by_name, numbers, random, require
from cs336_kit.examination.table import Answers
from cs336_kit.problems.rope.program import TABLE

D_K = 8
THETA = 4.0
NAMES = ("d_k", "theta", "max_seq_len", "in_query_or_key", "token_positions")


@dataclass(frozen=True)
class Call:
    """The sizes of a call; with `own`, each sequence of the batch has positions of its own."""

    batch: tuple[int, ...] = (3,)
    at: tuple[int, ...] = (2, 0, 3, 1)
    own: bool = False
    max_seq_len: int = 50

    @property
    def arguments(self) -> tuple[Any, ...]:
        return D_K, THETA, self.max_seq_len, self.x, self.positions

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    @property
    def x(self) -> Tensor:
        return random(5, *self.batch, len(self.at), D_K)

    @property
    def positions(self) -> Tensor:
        if not self.own:
            return torch.tensor(self.at)
        return torch.tensor([self.at, self.at[::-1]]).view(2, *(1 for _ in self.batch[1:]), len(self.at))

    def is_like(self, case: Case) -> bool:
        return case.in_query_or_key.ndim >= self.x.ndim and case.token_positions.ndim >= self.positions.ndim


def variation(id: str, call: Call, question: str) -> Variation:
    words = f"for x of shape {call.shape} and token_positions of shape {tuple(call.positions.shape)}"
    return Variation(id, words, vars(call), question, call.is_like)


LEADING = "Which two axes does a rotation need? Should it matter how many come before them?"
LINE_UP = "How do the axes of `token_positions` line up with those of x?"
VARIATIONS = (
    variation("one-vector", Call((), (2,)), LEADING),
    variation("2d", Call(()), LEADING),
    variation("4d", Call((2, 3)), LEADING),
    variation("own-positions", Call((2,), own=True), LINE_UP),
    variation("4d-own-positions", Call((2, 3), own=True), LINE_UP),
    Variation(
        "skipped-positions",
        "where a position is larger than the number of rows",
        {"at": (4, 17, 2, 9)},
        "Which of your tensors has a row for each position, and which a row for each vector of x?",
        lambda case: bool((case.token_positions >= case.in_query_or_key.shape[-2]).any()),
    ),
    Variation(
        "last-position",
        "where a position is max_seq_len - 1",
        {"max_seq_len": 4},
        "How many positions are there from 0 to max_seq_len - 1, and how many rows does your table have?",
        lambda case: bool((case.token_positions == case.max_seq_len - 1).any()),
    ),
)


@about("rope", "5 Rotary position embedding")
def examine_rope(run: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_rope`, the most fundamental first."""
    words = "for x of shape (3, 4, 8) and token_positions of shape (4,)"
    return diagnose(by_name(run, *NAMES), TABLE, Call(), words, VARIATIONS, facts, (torch.float32,))


def facts(ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    """The experiments, where the answers at positions in order are explained, and where they are not."""
    return (kept, angles, positions) if unexplained else (kept, positions)


def kept(ask: Ask) -> Finds:
    """Ask with one theta and then with another, for sizes that no call had before."""
    once, again = ((10, theta, 37, random(5, 6, 10), torch.arange(6)) for theta in (5.0, 7.0))
    ask.tensor((6, 10), *once)
    if not near(ask.tensor((6, 10), *again), TABLE.call([], *once)):
        return None
    measured = "Called with theta = 5 and then with theta = 7, your function gives the angles of theta = 5 both times."
    question = "What is kept from call to call, and which arguments does it depend on?"
    return Finding("kept", measured, "What you compute from theta is kept, and not computed anew.", question)


def angles(ask: Ask) -> Finds:
    """Measure by which angle each pair is rotated, or quote a vector that is not rotated pair by pair."""
    units = torch.eye(D_K).unsqueeze(1).expand(D_K, 3, D_K)  # (component, position, d_k)
    arguments = (D_K, THETA, 50, units, torch.arange(3))
    came, right = ask.tensor(units.shape, *arguments), TABLE.call([], *arguments).double()
    for p in range(3):
        if near(came[:, p], right[:, p]):
            continue
        by, should = (
            torch.stack([torch.atan2(x[j, p, j + 1], x[j, p, j]) for j in range(0, D_K, 2)]) for x in (came, right)
        )
        pairs = (torch.tensor([[c, s], [-s, c]]) for c, s in zip(by.cos(), by.sin(), strict=True))
        if near(came[:, p], torch.block_diag(*pairs)):
            measured = (
                f"With theta = 4 and d_k = {D_K} the pairs at position {p} are rotated by {numbers(by)} radians; they "
                f"should be rotated by {numbers(should)}."
            )
            return Finding("frequency", measured, "", "By which angle is pair i rotated at position 1?")
        j = int((came - right)[:, p].abs().amax(-1).argmax())
        measured = (
            f"With theta = 4, at position {p}, the vector that is 1 at component {j} and 0 elsewhere becomes "
            f"{numbers(came[j, p])}; it should become {numbers(right[j, p])}."
        )
        return Finding("unit-vector", measured, "", "Which two components does section 5 rotate together, and how?")
    return None


def positions(ask: Ask) -> Finds:
    """Find out at which positions rows are rotated, by comparing them with the rows of a sequence in order."""
    row, at = random(5, 1, D_K), torch.tensor([2, 0, 5, 1])
    in_order = ask.tensor((6, D_K), D_K, THETA, 50, row.expand(6, D_K), torch.arange(6))
    came = ask.tensor((4, D_K), D_K, THETA, 50, row.expand(4, D_K), at)
    used = (came.unsqueeze(1) - in_order).abs().amax(-1).argmin(-1)
    require(near(came, in_order[used]))
    if torch.equal(used, at):
        return None
    measured = (
        f"Four equal rows at positions {listed(at.tolist())} come out as they do at positions {listed(used.tolist())} "
        "of a sequence that is in order."
    )
    question = "Which position does each row of x have, and which one does your code give it?"
    return Finding("positions", measured, "", question)
