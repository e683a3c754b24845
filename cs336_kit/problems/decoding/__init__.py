"""Decoding: causal self-attention with grouped heads, a sliding window and a cache of keys and values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import listed, near
from cs336_kit.engine.room import Functions, Room
from cs336_kit.examination.calls import Variation
from cs336_kit.examination.diagnosis import diagnose
from cs336_kit.examination.experiment import Ask, Finding, Finds, about, by_name, examine, number
from cs336_kit.examination.table import Answers
from cs336_kit.problems.decoding.program import D_MODEL, HEADS, NAMES, RIGHT, TABLE, call, in_pieces, run
from cs336_kit.problems.multihead_self_attention import facts as of_heads
from cs336_kit.problems.multihead_self_attention.examination import DTYPES, LEADING
from cs336_kit.problems.multihead_self_attention.on_earlier import projected_by

D_K, KV = D_MODEL // HEADS, 2
USUAL = "for 2 tokens behind a cache of 3"


@about("decoding", "B4 Decoding")
def examine_decoding(student: Callable[..., Any]) -> list[Finding]:
    """Say what is wrong with `run_decoding`, the most fundamental first."""
    ask = by_name(partial(in_pieces, student), *NAMES)
    return examine(student, (three_tensors,)) or diagnose(
        ask, TABLE, Call(), USUAL, VARIATIONS, facts, DTYPES, without=("keys", "values")
    )


def three_tensors(student: Callable[..., Any]) -> Finds:
    """Check that the answer comes with a cache."""
    arguments = dict(zip(NAMES, Call(past=0).arguments, strict=False))
    came = Ask(lambda: student(**{name: x for name, x in arguments.items() if name not in ("lengths", "part")}))()
    if isinstance(came, tuple | list) and len(came) == 3 and all(isinstance(x, Tensor) for x in came):
        return None
    kinds = listed(type(x).__name__ for x in came) if isinstance(came, tuple | list) and came else type(came).__name__
    measured = (
        f"Your adapter returns {kinds}; it should return three tensors: the answer, and the keys and values of the "
        "new cache."
    )
    return Finding("no-cache", measured, "", "What does a call have to hand to the next one?")


@dataclass(frozen=True)
class Call:
    """The sizes of a call; `part` is 0 for the answer, 1 for the keys that are kept, and 2 for the values."""

    batch: tuple[int, ...] = ()
    lengths: tuple[int, ...] = (2,)
    past: int = 3
    kv: int = KV
    window: int | None = None
    part: int = 0

    @property
    def arguments(self) -> tuple[Any, ...]:
        return call(*self.lengths, kv=self.kv, window=self.window, part=self.part, batch=self.batch, past=self.past)

    @property
    def shape(self) -> tuple[int, ...]:
        tokens = sum(self.lengths)
        return (*self.batch, self.kv, self.past + tokens, D_K) if self.part else (*self.batch, tokens, D_MODEL)


SPLIT = "Which axis do you split into heads, and how many heads do queries have, and how many keys and values?"
GROWS = "How many heads, and how many more rows, should the cache have after a call with 2 tokens?"
MASK = "Which shape should the mask have, when there are more keys than new tokens?"


def _kept(past: int) -> tuple[Variation, ...]:
    """The shapes of what is kept, behind a cache of so many tokens."""
    where = "behind a cache of 3" if past else "without a cache"
    return tuple(
        Variation(
            f"{name}-{'behind' if past else 'first'}",
            f"for the {name} that you return {where}",
            {"part": part, "past": past},
            GROWS,
        )
        for part, name in ((1, "keys"), (2, "values"))
    )


VARIATIONS = (
    Variation("no-cache", "without a cache", {"past": 0}, MASK, lambda case: case.keys is None),
    Variation("one-token", "for a single new token", {"lengths": (1,)}, MASK),
    Variation("all-heads", "with keys and values for each head", {"kv": HEADS}, SPLIT, lambda case: _group(case) == 1),
    Variation("one-kv-head", "with a single key/value head", {"kv": 1}, SPLIT, lambda case: case.num_kv_heads == 1),
    Variation("window", "with a window of 2", {"window": 2}, MASK, lambda case: case.window is not None),
    Variation("3d", "for a batch of 2 sequences", {"batch": (2,)}, LEADING, lambda case: case.in_features.ndim > 2),
    Variation("4d", "for a batch of 2 by 3", {"batch": (2, 3)}, LEADING, lambda case: case.in_features.ndim > 3),
    *_kept(3),
    *_kept(0),
    Variation("in-steps", "token by token", {"lengths": (1, 1), "past": 0}, GROWS),
)


def _group(case: Case) -> int:
    return case.num_heads // case.num_kv_heads


def facts(ask: Ask, unexplained: Answers) -> Sequence[Callable[[Ask], Finds]]:
    return *of_heads.facts(in_one_call, True, ask, unexplained), from_call_to_call, sees_in_window


def in_one_call(weights: Sequence[Tensor], x: Tensor, window: int | None = None) -> tuple[Any, ...]:
    heads = of_heads.HEADS
    return of_heads.D_MODEL, heads, heads, window, 50, 4.0, *weights, x, (x.shape[-2],), 0


def from_call_to_call(ask: Ask) -> Finds:
    """Compare a sequence in one call with the same one in three."""
    (*one, x, _, part), lengths = call(5, kv=KV), (3, 1, 1)
    whole, pieces = (ask.tensor(x.shape, *one, x, cut, part) for cut in ((5,), lengths))
    for t in range(5):
        if not near(pieces[t], whole[t]):
            measured = (
                f"In calls of 3, 1 and 1 tokens, your answers are not those of one call with 5: those to token {t} "
                f"differ by up to {number((pieces[t] - whole[t]).abs().max())}."
            )
            question = "What do the new tokens need of those before them, and is that what the cache holds?"
            return Finding("calls-differ", measured, "", question)
    return None


def sees_in_window(ask: Ask) -> Finds:
    """Find out with which tokens the last answer changes, with a window of 2."""
    x = of_heads.normal(1, of_heads.TOKENS, of_heads.D_MODEL)
    last = ask.tensor(x.shape, *in_one_call(of_heads.ANY, x, 2))[0, -1]
    changes = []
    for key in range(of_heads.TOKENS):
        other = x.clone()
        other[0, key] += 1
        changes.append(not near(ask.tensor(x.shape, *in_one_call(of_heads.ANY, other, 2))[0, -1], last, 1e-4))
    seen = torch.tensor(changes)
    if seen.tolist() == [False] * 3 + [True] * 2:
        return None
    measured = (
        f"With a window of 2, the answer to token 4 changes with {of_heads.tokens(seen)}; it should change with tokens "
        "3 and 4."
    )
    return Finding(
        "window", measured, "", "Which keys lie within the window of a token?", lambda case: bool(case.window)
    )


def decoding_on(earlier: Functions) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Decoding on the linear layer, the attention and the RoPE of whoever built those."""
    attention = earlier["run_scaled_dot_product_attention"]
    ways = {
        "attend": lambda ways, Q, K, V, mask: attention(Q, K, V, mask),
        "rotate": lambda x, at, theta, length: earlier["run_rope"](x.shape[-1], theta, length, x, at),
    }
    return partial(run, {**RIGHT, **projected_by(earlier), **ways})


ROOM = Room(examinations={"run_decoding": examine_decoding}, on_earlier={"run_decoding": decoding_on})
