"""Measurements of a student's multi-head attention whose answers no known mistake explains."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import listed, near, same
from cs336_kit.examination.experiment import Ask, Finding, Finds, number, numbers, require
from cs336_kit.examination.table import Answers
from cs336_kit.problems.multihead_self_attention.program import MAX_SEQ_LEN, OTHER_THETA, THETA, normal

D_MODEL, HEADS, D_HEAD, TOKENS, SHOWN, LATER = 12, 3, 4, 5, 3, 3
SEEN = 1e-4  # a token may be looked at with a small weight
ANY = tuple(normal(4, D_MODEL, D_MODEL) / 2)

Arguments = Callable[[Sequence[Tensor], Tensor], tuple[Any, ...]]  # of a call with weights and (batch, tokens, d_model)


def without_rope(weights: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
    return D_MODEL, HEADS, *weights, x


def at_zero(weights: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
    return at(torch.zeros(x.shape[-2], dtype=torch.long), weights, x)


def at(positions: Tensor | None, weights: Sequence[Tensor], x: Tensor, theta: float = THETA) -> tuple[Any, ...]:
    return D_MODEL, HEADS, *weights, x, MAX_SEQ_LEN, theta, positions


def facts(arguments: Arguments, causal: bool, ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    """The experiments: the first where the basic calls are explained, otherwise all."""
    found = (partial(batch, arguments),)
    return (*found, partial(single_token, arguments), partial(sees, arguments, causal)) if unexplained else found


def facts_with_rope(ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    return *facts(at_zero, True, ask, unexplained), default_positions, other_theta, later_positions


def batch(arguments: Arguments, ask: Ask) -> Finds:
    """Compare sequences alone with the same ones in a batch."""
    x = normal(3, TOKENS, D_MODEL)
    together = ask.tensor(x.shape, *arguments(ANY, x))
    alone = torch.cat([ask.tensor((1, *x.shape[1:]), *arguments(ANY, each.unsqueeze(0))) for each in x])
    if near(together, alone):
        return None
    change = (together - alone).abs().amax((-1, -2))
    measured = (
        f"In a batch of 3, the answers to the sequences differ by up to {numbers(change)} from those that each of them "
        "gets alone. It should make no difference."
    )
    question = "Which axes are joined before attention? May a token of one sequence meet one of another?"
    return Finding("batch", measured, "", question, lambda case: first_input(case).ndim > 2)


def single_token(arguments: Arguments, ask: Ask) -> Finds:
    """Check that a single token becomes W_O W_V x."""
    x = normal(1, 1, D_MODEL)
    came, right = ask.tensor(x.shape, *arguments(ANY, x))[0, 0], ANY[3] @ ANY[2] @ x[0, 0]
    if near(came, right):
        return None
    measured = (
        f"Your answer to a single token x begins {numbers(came[:SHOWN])}; W_O W_V x begins {numbers(right[:SHOWN])}."
    )
    question = "A single token attends to itself alone. What else happens to its value on the way?"
    return Finding("single-token", measured, "", question)


def sees(arguments: Arguments, causal: bool, ask: Ask) -> Finds:
    """Find out with which tokens an answer changes."""
    x = normal(1, TOKENS, D_MODEL)
    answer = ask.tensor(x.shape, *arguments(ANY, x))
    changes = []
    for key in range(TOKENS):
        other = x.clone()
        other[0, key] += 1
        changes.append(~same(ask.tensor(x.shape, *arguments(ANY, other)), answer, SEEN)[0].all(-1))
    seen, everyone = torch.stack(changes, -1), torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    right = everyone.tril() if causal else everyone
    for t in (seen != right).any(-1).nonzero().flatten().tolist()[:1]:
        measured = (
            f"In a sequence of {TOKENS}, the answer to token {t} changes with {tokens(seen[t])}; it should change with "
            f"{tokens(right[t])}."
        )
        return Finding("mask", measured, "", "Which tokens may a token look at? Which axis of your scores are they on?")
    return None


def default_positions(ask: Ask) -> Finds:
    """Check that positions are counted from 0 where none are given."""
    x = normal(1, TOKENS, D_MODEL)
    given, left_out = (ask.tensor(x.shape, *at(p, ANY, x)) for p in (torch.arange(TOKENS), None))
    if near(given, left_out):
        return None
    measured = (
        f"Without `token_positions` the answers differ by up to {number((given - left_out).abs().max())} from those at "
        f"positions 0 to {TOKENS - 1}; they should be the same."
    )
    question = "What should the positions be when none are given?"
    return Finding("default-positions", measured, "", question, has_default_positions)


def other_theta(ask: Ask) -> Finds:
    """Check that theta makes a difference."""
    x, positions = normal(1, TOKENS, D_MODEL), torch.arange(TOKENS)
    one, other = (ask.tensor(x.shape, *at(positions, ANY, x, theta)) for theta in (THETA, OTHER_THETA))
    require(not near(one, ask.tensor(x.shape, *at_zero(ANY, x))))  # or no angle makes a difference
    if not near(one, other):
        return None
    measured = f"Your answers for theta = {THETA:g} and theta = {OTHER_THETA:g} are the same."
    question = "Which theta are your angles made of, and when?"
    return Finding("theta-ignored", measured, "", question, lambda case: "theta" in case.inputs)


def later_positions(ask: Ask) -> Finds:
    """Check that only the differences of positions count."""
    x, positions = normal(1, TOKENS, D_MODEL), torch.arange(TOKENS)
    early, late = (ask.tensor(x.shape, *at(positions + later, ANY, x)) for later in (0, LATER))
    if near(early, late):
        return None
    measured = (
        f"When every position is {LATER} larger, your answers change by up to {number((late - early).abs().max())}; "
        "they should stay as they are."
    )
    means = "Queries and keys are not rotated alike, or something else is rotated, too."
    question = "Where do the angles of two positions meet, so that only their difference is left?"
    return Finding("positions", measured, means, question, lambda case: "theta" in case.inputs)


def tokens(which: Tensor) -> str:
    numbers = which.nonzero().flatten().tolist()
    return f"token{'s' * (len(numbers) > 1)} {listed(numbers)}" if numbers else "no token"


def first_input(case: Case) -> Tensor:
    return case.inputs["in_features"] if "in_features" in case.inputs else case.inputs["query"]


def has_default_positions(case: Case) -> bool:
    return "theta" in case.inputs and case.token_positions is None
