"""Misconceptions, and making one from a wrong part.

A wrong part is wrong wherever a submission uses it: a wrong softmax makes attention wrong, and attention makes
multi-head attention wrong. Blockwise attention uses neither: it has an online softmax of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from cs336_staff.authoring.parts import Adapter, Part, adapters, attention, blockwise, module, multihead, rotate

SOFTMAX = "run_softmax"
ATTENTION = "run_scaled_dot_product_attention"
LINEAR = "run_linear"
ROPE = "run_rope"
MULTIHEAD = ("run_multihead_self_attention", "run_multihead_self_attention_with_rope")
MODULE = "run_scaled_dot_product_attention_module"
CROSS_ATTENTION = "run_multihead_attention"
BLOCKWISE = "run_blockwise_attention"


@dataclass(frozen=True)
class Misconception:
    """A known wrong implementation.

    Args:
        id: its name, which begins with that of its family.
        what: what it does wrong.
        problem: the problem in which the mistake is made.
        adapters: the adapters that are wrong; the others of the submission are right.
        parts: the wrong parts, by name, if it is put together from parts.
    """

    id: str
    what: str
    problem: str
    adapters: Mapping[str, Adapter]
    parts: Mapping[str, Part] = field(default_factory=dict)


def in_softmax(id: str, what: str, softmax: Part) -> Misconception:
    """A wrong `softmax(x, dim)`."""
    wrong = adapters(softmax=softmax, attention=partial(attention, softmax=softmax))
    return _entry(id, what, "softmax", wrong, {"softmax": softmax}, SOFTMAX, ATTENTION, *MULTIHEAD)


def in_attention(id: str, what: str, wrong: Part = attention, *, alone: bool = False, **parts: Part) -> Misconception:
    """A wrong `attention(Q, K, V, mask)`, or one with wrong parts; `alone`: not in multi-head attention too."""
    calls = (ATTENTION,) if alone else (ATTENTION, *MULTIHEAD)
    wrong_adapters = adapters(attention=partial(wrong, **parts))
    return _entry(id, what, "scaled_dot_product_attention", wrong_adapters, parts, *calls)


def in_linear(id: str, what: str, linear: Part, *, alone: bool = False) -> Misconception:
    """A wrong `linear(x, W)`; `alone`: not in multi-head attention too."""
    calls = (LINEAR,) if alone else (LINEAR, *MULTIHEAD)
    return _entry(id, what, "linear", adapters(linear=linear), {"linear": linear}, *calls)


def in_rope(id: str, what: str, wrong: Part = rotate, **parts: Part) -> Misconception:
    """A wrong `rotate(x, positions, theta)`, or one with wrong parts."""
    return _entry(id, what, "rope", adapters(rotate=partial(wrong, **parts)), parts, ROPE, *MULTIHEAD)


def in_multihead(id: str, what: str, **parts: Part) -> Misconception:
    """Causal multi-head attention with wrong parts."""
    wrong = partial(multihead, **parts)
    return Misconception(id, what, "multihead_self_attention", dict.fromkeys(MULTIHEAD, wrong), parts)


def in_module(id: str, what: str, attend: Part, *, always: bool = False) -> Misconception:
    """A wrong `attend(Q, K, V, mask, p)`, which gives output and weights; `always`: drops in evaluation too."""
    return Misconception(id, what, "attention_module", {MODULE: partial(module, attend=attend, always=always)})


def in_cross_attention(id: str, what: str, wrong: Part) -> Misconception:
    """A wrong `run_multihead_attention`."""
    return Misconception(id, what, "multihead_attention", {CROSS_ATTENTION: wrong})


def in_blockwise(id: str, what: str, wrong: Part = blockwise, **parts: Part) -> Misconception:
    """A wrong `blockwise(Q, K, V, mask, block_size)`, or one with wrong parts."""
    return _entry(id, what, "blockwise_attention", adapters(blockwise=partial(wrong, **parts)), parts, BLOCKWISE)


def together(first: Misconception, second: Misconception) -> Misconception | None:
    """A program with two mistakes: of one problem, or of softmax and of attention, which uses it.

    None if they are of other problems, or are not in different parts.
    """
    on_softmax = (first.problem, second.problem) == ("softmax", "scaled_dot_product_attention")
    make = {
        "scaled_dot_product_attention": in_attention,
        "rope": in_rope,
        "multihead_self_attention": in_multihead,
        "blockwise_attention": in_blockwise,
    }.get(second.problem)
    apart = first.parts and second.parts and not first.parts.keys() & second.parts.keys()
    if make is None or not apart or (first.problem != second.problem and not on_softmax):
        return None
    both = make(f"{first.id}, {second.id}", "", **first.parts, **second.parts)
    softmax = {SOFTMAX: first.adapters[SOFTMAX]} if on_softmax else {}
    return replace(both, adapters=softmax | both.adapters)


def _entry(
    id: str, what: str, problem: str, wrong: Mapping[str, Adapter], parts: Mapping[str, Part], *calls: str
) -> Misconception:
    """Of the adapters of a wrong submission, those that are called `calls`."""
    return Misconception(id, what, problem, {call: wrong[call] for call in calls}, parts)
