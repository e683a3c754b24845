"""Asking multi-head attention who sees whom.

Weights of almost 0 make all scores alike, so every answer is an average of what its token sees. Which inputs an answer
changes with shows how the heads are split and joined, and whom the mask hides. What the weights are used for is asked
in `projections.py` and `scores.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.examination.experiment import Ask, Finding, NoAnswerError
from cs336_kit.examination.words import listed, number, numbers

D_MODEL, HEADS, D_HEAD = 12, 3, 4
TOKENS = 5  # neither the number of heads nor the length of one
CLOSE = 0.02  # of numbers around 1
TINY = 0.01  # weights so small that all scores are 0 as far as softmax can tell

Finds = Finding | None


class Weights(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor


@dataclass
class Heads:
    """The student's attention within one sequence, and what was found out about it.

    Args:
        ask: the function.
        arguments: of a call with these weights and this input (..., sequence, d_model).
        problem: the first word of the findings' ids.
        causal: whether a token may not see later ones.
        in_order: the arguments with positions that grow, where `arguments` has others.
    """

    ask: Ask
    arguments: Callable[[Weights, Tensor], tuple[Any, ...]]
    problem: str
    section: str
    causal: bool
    in_order: Callable[[Weights, Tensor], tuple[Any, ...]] | None = None
    needs_batch: bool = False  # a sequence without a batch is not answered
    crashed: bool = False  # with a sequence of TOKENS
    batched: bool = False  # several sequences in one call do not disturb each other
    unused: set[str] = field(default_factory=set)  # weights that change nothing
    value_alone: bool = False  # a single token's answer is made of its value alone
    correct: Callable[[Weights], Weights] = lambda weights: weights  # undoes what was found about the weights
    names: tuple[str, str, str] = ("W_Q", "W_K", "W_V")  # of the weights that make queries, keys and values
    values_transposed: bool = False
    probed: Tensor = field(default_factory=lambda: torch.zeros(0))
    effects: Tensor | None = None  # (probed, output): what a 1 in these places of the input changes
    layout: tuple[str, str] | None = None  # how the heads are split and joined
    seen: Tensor | None = None  # (query, key): the weights where all scores are alike
    finite: Tensor = field(default_factory=lambda: torch.ones(TOKENS, dtype=torch.bool))  # the answers to these tokens
    scores_readable: bool = True  # from the weights of one query
    averaged: bool = False  # the weights of all heads
    head_of_row: Callable[[int], int] | None = None  # of W_Q and W_K
    scale: float | None = None

    def finding(
        self, id: str, measured: str, means: str, question: str, touches: Callable[[Case], bool] = lambda case: True
    ) -> Finding:
        return Finding(f"{self.problem}-{id}", measured, means, question, self.section, touches)

    def answer(self, weights: Weights, x: Tensor) -> Tensor:
        if self.needs_batch and x.ndim == 2:
            return self.answer(weights, x.unsqueeze(0))[0]
        return self.ask.tensor(x.shape, *self.arguments(self.correct(weights), x))

    def answers(self, weights: Weights, x: Tensor) -> Tensor:
        """The answers to sequences (n, sequence, d_model), in one call if they do not disturb each other there."""
        if self.batched:
            return self.answer(weights, x)
        return torch.stack([self.answer(weights, sequence) for sequence in x])

    def known_seen(self) -> Tensor:
        if self.seen is None:
            raise NoAnswerError("who sees whom is not known")
        return self.seen


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(6))


def first_input(case: Case) -> Tensor:
    return case.inputs["in_features"] if "in_features" in case.inputs else case.inputs["query"]


def has_heads(case: Case) -> bool:
    return case.num_heads > 1


def has_tokens(case: Case) -> bool:
    return first_input(case).shape[-2] > 1


def batch(heads: Heads) -> Finds:
    """Compare a sequence alone with the same one in a batch; this decides whether later calls take several at once."""
    weights, x = Weights(*(normal(4, D_MODEL, D_MODEL) / 2).unbind()), normal(3, TOKENS, D_MODEL)
    try:
        heads.answer(weights, x[0])
    except NoAnswerError:
        heads.needs_batch = True
    try:
        alone = torch.stack([heads.answer(weights, sequence) for sequence in x])
    except NoAnswerError:
        heads.crashed = True
        raise
    together = heads.answer(weights, x)
    if torch.allclose(together, alone, atol=1e-3, rtol=1e-3, equal_nan=True):
        heads.batched = True
        return None
    measured = "In a batch of 3, the answers to the sequences differ by up to "
    change = (together - alone).abs().amax((-1, -2))
    measured += f"{numbers(change.where(change > 1e-3, 0))} from those that each of them gets alone."
    if not change.isfinite().all():
        together, alone = (int((~x.isfinite()).sum()) for x in (together, alone))
        measured = f"{together} numbers of the answer to a batch of 3 are NaN or infinite, and {alone} alone."
    return heads.finding(
        "batch",
        f"{measured} It should make no difference.",
        "The sequences of a batch see each other, or are put back in a different order.",
        "Which axes are joined before attention? May a token of one sequence meet one of another?",
        lambda case: first_input(case).ndim > 2,
    )


def zeros(heads: Heads) -> Finds:
    """Check that a score of exactly 0 counts like one of almost 0."""
    eye, x = torch.eye(D_MODEL), torch.ones(TOKENS, D_MODEL)
    first, second = (eye * (torch.arange(D_MODEL) % D_HEAD == row) for row in (0, 1))
    almost = heads.answer(Weights(first, second + TINY * first, eye, eye), x)[-1]
    exactly = heads.answer(Weights(first, second, eye, eye), x)[-1]
    one = torch.ones_like(almost)
    if not torch.allclose(almost, one, atol=CLOSE) or torch.allclose(exactly, one, atol=CLOSE):
        return None
    return heads.finding(
        "zero-scores",
        f"The last of {TOKENS} tokens of ones gets {number(almost[0])} where the scores are almost 0, and "
        f"{number(exactly[0])} where they are exactly 0.",
        "A score of 0 is mistaken for one that is masked.",
        "How does your code tell a score that the mask hides from one that happens to be 0?",
    )


def places(way: str, tokens: int = TOKENS) -> Tensor:
    """Give the index of each (head, token, component) in a sequence that is read row by row."""
    rows = torch.arange(tokens * D_MODEL)
    if way == "view":
        return rows.view(HEADS, tokens, D_HEAD)
    if way == "inner":
        return rows.view(tokens, D_HEAD, HEADS).permute(2, 0, 1)
    return rows.view(tokens, HEADS, D_HEAD).transpose(0, 1)


BY_VIEW, INNER = "view or reshape and without a transpose", "(d_head heads); the heads are the outer factor"
WAYS = ("right", "view", "inner")


def split(heads: Heads) -> Finds:
    """Check that the heads are cut out of the features as they should be."""
    _find_layout(heads)
    return _wrong_way(heads, "split")


def join(heads: Heads) -> Finds:
    """Check that the heads are put side by side again."""
    return _wrong_way(heads, "join")


def _find_layout(heads: Heads) -> None:
    """Find out how the heads are split and joined, if all answers are averages of some inputs then."""
    if not heads.value_alone:
        raise NoAnswerError("the heads of one token are mixed")
    probed = torch.tensor([t * D_MODEL + c for t in range(TOKENS) for c in (0, 5, 10)])
    small, eye = TINY * torch.eye(D_MODEL), torch.eye(D_MODEL)
    probes = torch.cat((torch.zeros(1, TOKENS * D_MODEL), torch.eye(TOKENS * D_MODEL)[probed]))
    x = normal(1, TOKENS, D_MODEL) + probes.unflatten(-1, (TOKENS, D_MODEL))
    came = heads.answers(Weights(small, small, small, eye), x) / TINY
    heads.probed, heads.effects = probed, (came[1:] - came[:1]).nan_to_num().flatten(1)
    heads.finite = came[0].isfinite().all(-1)
    for way in product(WAYS, WAYS):
        heads.seen = _average(heads.effects, probed, *way)
        if heads.seen is not None:
            heads.layout = way
            return
    more = heads.answers(Weights(small, small, small, eye), x[:1] + 2 * (x - x[:1])) / TINY
    if ((more[1:] - more[:1]).nan_to_num().flatten(1) - 2 * heads.effects).abs().max() > CLOSE:
        heads.effects = None
        raise NoAnswerError("the answers are not averages")


def _wrong_way(heads: Heads, step: str) -> Finds:
    if heads.effects is None:
        raise NoAnswerError("how the heads are split and joined is not known")
    way = heads.layout and heads.layout[step == "join"]
    if way == "right" or (way is None and step == "join"):
        return None
    id, means = "mixed", "Something besides the weights of attention mixes tokens or features."
    if way:
        id, means = f"{step}-by-view" if way == "view" else f"{step}-inner", f"You {step} the heads "
        means += f"with {BY_VIEW}." if way == "view" else f"as {INNER}."
    inputs = heads.probed.unsqueeze(-1).expand_as(heads.effects)
    outputs = torch.arange(TOKENS * D_MODEL).expand_as(heads.effects)
    foreign = (heads.effects.abs() > TINY) & (inputs % D_MODEL != outputs % D_MODEL)
    if not foreign.any():
        raise NoAnswerError("every component stays where it is")
    (s, j), (t, c) = (divmod(int(place[foreign][0]), D_MODEL) for place in (inputs, outputs))
    return heads.finding(
        id,
        f"With all scores equal and W_V = W_O = 1, component {c} of the answer to token {t} contains component {j} of "
        f"token {s}; it should contain component {c} of the tokens, and no other.",
        means,
        "Which axes does your tensor have before and after each view or transpose? What does each head then hold?",
        has_heads,
    )


def _average(effects: Tensor, probed: Tensor, split: str, join: str) -> Tensor | None:
    """The weights (query, key) if answers are averages of inputs when the heads are split and joined in this way."""
    place = places(split).flatten().argsort()[probed]
    head, key, component = place // (TOKENS * D_HEAD), place // D_HEAD % TOKENS, place % D_HEAD
    came = effects[:, places(join)]  # (input, head, query, component)
    own = came[torch.arange(len(probed)), head, :, component]  # (input, query)
    seen = torch.stack([own[key == k].mean(0) for k in range(TOKENS)], -1)
    rest = came.square().sum() - own.square().sum()
    return seen if rest.abs() < CLOSE and (own - seen.T[key]).abs().max() < CLOSE else None


def mask(heads: Heads) -> Finds:
    """Find out which tokens each token sees."""
    sees, everyone = heads.known_seen() > TINY, torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    right = everyone.tril() if heads.causal else everyone
    if torch.equal(sees, right):
        return None
    known = {
        "mask-missing": (everyone, "There is no causal mask."),
        "mask-peeks": (everyone.tril(1), "The mask is shifted by one: every token sees the next one."),
        "mask-strict": (everyone.tril(-1), "The mask is shifted by one: no token sees itself."),
        "mask-upper": (everyone.triu(), "The mask is the upper triangle: every token sees itself and later ones."),
        "mask-inverted": (everyone.triu(1), "The mask is inverted: every token sees the later ones and no others."),
        "causal": (everyone.tril(), "There is a causal mask that nobody asked for."),
    }
    id, means = "mask", ""
    for name, (pattern, why) in known.items():
        rows = pattern.any(1)  # what a token gets that sees nothing differs from program to program
        if torch.equal(sees[rows], pattern[rows]):
            id, means = name, why
            break
    if id == "mask" and not heads.finite.all():
        return heads.finding(
            "not-finite",
            f"In a sequence of {TOKENS}, the answers to {_tokens(~heads.finite)} are NaN or infinite.",
            "",
            "Which score of such a token is infinite, and what does your softmax make of it?",
        )
    t = int((sees != right).any(1).nonzero()[:2][-1])
    if id == "mask-missing" and heads.in_order and _hides_the_last(replace(heads, arguments=heads.in_order)):
        return heads.finding(
            "mask-by-position",
            f"With token_positions that are all 0, token {t} of {TOKENS} sees {_tokens(sees[t])}; with positions 0, 1, "
            f"2, …, no token but the last one sees the last one.",
            "The causal mask compares token_positions; it should compare places in the sequence.",
            "Which tokens come before the second one when positions repeat, or go back?",
            has_tokens,
        )
    question = "Does position 1 of one sequence come before position 2 of another?"
    if heads.causal:
        question = "May the token at position 2 look at itself? At position 3? Which answers may the last token change?"
    measured = f"In a sequence of {TOKENS}, token {t} sees {_tokens(sees[t])}; it should see {_tokens(right[t])}."
    return heads.finding(id, measured, means, question, has_tokens)


def _hides_the_last(heads: Heads) -> bool:
    """Test whether a change to the last token leaves every answer but its own as it was."""
    one = torch.eye(D_MODEL)
    weights, x = Weights(TINY * one, TINY * one, one, one), normal(TOKENS, D_MODEL)
    changed = x.clone()
    changed[-1] += 1
    return not (heads.answer(weights, changed) - heads.answer(weights, x))[:-1].abs().gt(TINY).any()


def _tokens(sees: Tensor) -> str:
    tokens = sees.nonzero().flatten().tolist()
    return f"token{'s' * (len(tokens) > 1)} {listed(tokens)}" if tokens else "no token"


def sums(heads: Heads) -> Finds:
    """Check that the weights of each token sum to 1."""
    seen = heads.known_seen()
    rows, columns = seen.sum(1), seen.sum(0)
    visible = seen.amax(1) > TINY
    if ((rows - 1).abs() < CLOSE)[visible].all():
        return None
    id, means = "weights-sum", ""
    if ((columns - 1).abs() < CLOSE).all():
        id, means = "softmax-over-queries", "Softmax runs over the queries, not over the keys."
    elif ((seen - 1 / TOKENS).abs()[seen > TINY] < TINY).all():
        id, means = "mask-after-softmax", "The mask is applied after softmax, to weights that already sum to 1."
    heads.scores_readable = id == "mask-after-softmax"
    return heads.finding(
        id,
        f"Where all scores are equal, the weights of the tokens sum to {numbers(rows)}; each sum should be 1.",
        means,
        "Along which axis does softmax run, and what happens to its weights afterwards?",
        has_tokens,
    )
