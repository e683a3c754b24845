"""Multi-head attention in steps, and the mistakes that can be made in each.

The heads are slices; attention in each is that of its own room, with the mistakes that can be made there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.examination.experiment import random
from cs336_kit.examination.table import Change, Table, Way, Ways, ways_to
from cs336_kit.problems.rope import program as rope_in_steps
from cs336_kit.problems.scaled_dot_product_attention import program as attention


def attend_in_heads(
    ways: Ways,
    num_heads: int,
    weights: Sequence[Tensor],
    sequences: Sequence[Tensor],
    allowed: Callable[[Tensor, Tensor], Tensor | None],
    rotate: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """Multi-head attention whose steps are done in these ways.

    Args:
        ways: the way to do each step.
        num_heads: that many.
        weights: W_Q, W_K, W_V and W_O.
        sequences: of which queries, keys and values are made.
        allowed: makes the mask for queries and keys.
        rotate: is done to queries and keys.
    """
    *of_heads, W_O = weights
    rotate_inputs, rotate = ways["rotated"](rotate)
    pairs = zip(rotate_inputs(*ways["sequences"](*sequences)), ways["projections"](*of_heads, num_heads), strict=True)
    Q, K, V = (ways["split"](ways["linear"](x, W), num_heads) for x, W in pairs)
    attend = partial(ways["over"], partial(ways["attend"], ways), allowed)
    joined = ways["merge"](ways["turn"](Q, K, V, rotate, attend))
    return ways["answer"](ways["joined"](ways["linear"], joined, W_O, num_heads), sequences[0])


def multihead(
    ways: Ways,
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    max_seq_len: int = 0,
    theta: float | None = None,
    token_positions: Tensor | None = None,
) -> Tensor:
    """Causal self-attention, with RoPE where theta is given."""

    def rotate(x: Tensor) -> Tensor:
        if theta is None:
            return x
        return ways["rotate"](x, ways["positions"](token_positions, x, max_seq_len), theta, max_seq_len)

    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attend_in_heads(
        ways, num_heads, weights, (in_features,) * 3, partial(ways["allowed"], token_positions), rotate
    )


def by_head(x: Tensor, num_heads: int) -> Tensor:
    """Cut (..., sequence, d_model) into slices, one for each head, which come before the sequence."""
    d_head = x.shape[-1] // num_heads
    return torch.stack([x[..., h * d_head : (h + 1) * d_head] for h in range(num_heads)], -3)


def side_by_side(heads: Tensor) -> Tensor:
    """Sum the heads, each in components of its own."""
    width, last = heads.shape[-1], heads.shape[-3] - 1
    return torch.stack([F.pad(x, (h * width, (last - h) * width)) for h, x in enumerate(heads.unbind(-3))]).sum(0)


def causal(x: Tensor, diagonal: int = 0) -> Tensor:
    """Let each token see those before it, itself, and so many more."""
    return torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril(diagonal)


def place(given: Tensor | None, x: Tensor, max_seq_len: int = 0) -> Tensor:
    """The positions of (..., heads, sequence)."""
    return torch.arange(x.shape[-2]) if given is None else given.unsqueeze(-2)


def turned_by(exponents: Callable[[Tensor, int, Tensor], Tensor]) -> Way:
    """RoPE whose frequencies are theta to the power of `exponents(i, d_head, head)`: matrices of cosines."""

    @lru_cache(maxsize=256)  # the calls of a table have few positions, and every run needs them twice
    def matrices(positions: tuple[float, ...], shape: torch.Size, d_head: int, heads: int, theta: float) -> Tensor:
        i, head = torch.arange(d_head // 2).double(), torch.arange(heads).view(-1, 1, 1)
        angles = torch.tensor(positions).view(*shape, 1) * theta ** exponents(i, d_head, head)
        return (angles[..., None, None] + rope_in_steps.TURN * math.pi / 2).cos()

    def rotate(x: Tensor, positions: Tensor, theta: float, max_seq_len: int) -> Tensor:
        at = tuple(positions.flatten().tolist()), positions.shape
        turns = matrices(*at, x.shape[-1], x.shape[-3], theta).to(x.dtype)
        return (turns @ x.unflatten(-1, (-1, 2)).unsqueeze(-1)).flatten(-3)

    return rotate


def as_they_are(*x: Tensor) -> tuple[Tensor, ...]:
    return x


THETA, OTHER_THETA, MAX_SEQ_LEN = 4.0, 9.0, 50
rope = turned_by(lambda i, d_head, head: -2 * i / d_head)
RIGHT: Ways = {
    **attention.RIGHT,
    "sequences": lambda query, key, value: (query, key, value),
    "projections": lambda q, k, v, heads: (q, k, v),
    "linear": F.linear,
    "split": by_head,
    "positions": place,
    "rotate": rope,
    "rotated": lambda rotate: (as_they_are, rotate),
    "turn": lambda Q, K, V, rotate, attend: attend(rotate(Q), rotate(K), V),
    "allowed": lambda at, Q, K: causal(Q),
    "over": lambda attend, allowed, Q, K, V: attend(Q, K, V, allowed(Q, K)),
    "attend": attention.attend,
    "empty": lambda W, mask: W,  # there is no token that sees nothing
    "merge": side_by_side,
    "joined": lambda linear, x, W, heads: linear(x, W),
    "answer": lambda y, query: y,
}
# What becomes of a token that sees nothing, where the mask is wrong.
ALSO_RIGHT: tuple[Ways, ...] = (
    {"guard": lambda W: W.nan_to_num(0.0)},
    {"empty": lambda W, mask: W.where(mask.any(-1, keepdim=True), 1 / W.shape[-1])},
)


def cut(weights: Sequence[Tensor], *sizes: int) -> tuple[Tensor, ...]:
    """The joint weight, cut into three along the second of these axes."""
    return torch.cat(tuple(weights)).unflatten(0, sizes).movedim(1, 0).flatten(1, -2).unbind()


def within_slice(W: Tensor, heads: int) -> Tensor:
    """A weight whose heads see their own slice of the input alone."""
    return W * torch.block_diag(*[torch.ones(len(W) // heads, len(W) // heads)] * heads)


def overlapping(W: Tensor, heads: int) -> Tensor:
    """The rows of a weight as a loop over the heads cuts them that does not multiply by their length."""
    return torch.cat([W[h : h + len(W) // heads] for h in range(heads)])


def over_heads(attend: Way, allowed: Way, *QKV: Tensor) -> Tensor:
    Q, K, V = (x.transpose(-3, -2) for x in QKV)
    return attend(Q, K, V, allowed(Q, K)).transpose(-3, -2)


def along_first_axis(attend: Way, allowed: Way, *QKV: Tensor) -> Tensor:
    """Attention between the sequences of a batch; a sequence without a batch attends to itself."""
    axis = 0 if QKV[0].ndim > 3 else -2
    Q, K, V = (x.movedim(axis, -2) for x in QKV)
    return attend(Q, K, V, allowed(Q, K)).movedim(-2, axis)


def in_one_sequence(attend: Way, allowed: Way, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Attention to all sequences of the batch, one behind the other."""
    q, k, v = (x.movedim(-3, 0).flatten(1, -2) for x in (Q, K, V))
    return attend(q, k, v, allowed(q, k)).view(Q.movedim(-3, 0).shape).movedim(0, -3)


def averaged(attend: Way, allowed: Way, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    weights = attend(Q, K, torch.eye(K.shape[-2], dtype=K.dtype).expand(*K.shape[:-1], -1), allowed(Q, K))
    return weights.mean(-3, keepdim=True) @ V


WEIGHTS = ways_to(
    "projections",
    "Which of the weights makes the queries, the keys and the values? Which axis of each meets the input?",
    ("queries-keys-swapped", "W_K makes the queries, and W_Q the keys.", lambda q, k, v, h: (k, q, v)),
    ("keys-values-swapped", "W_V makes the keys, and W_K the values.", lambda q, k, v, h: (q, v, k)),
    ("queries-values-swapped", "W_V makes the queries, and W_Q the values.", lambda q, k, v, h: (v, k, q)),
    ("keys-by-q", "W_Q makes the keys too.", lambda q, k, v, h: (q, q, v)),
    ("queries-by-k", "W_K makes the queries too.", lambda q, k, v, h: (k, k, v)),
    ("values-by-k", "W_K makes the values too.", lambda q, k, v, h: (q, k, k)),
    ("values-by-q", "W_Q makes the values too.", lambda q, k, v, h: (q, k, q)),
    (
        "qkv-transposed",
        "You multiply by W_Q, W_K and W_V the wrong way round.",
        lambda q, k, v, h: (q.mT, k.mT, v.mT),
    ),
    ("scores-transposed", "You multiply by W_Q and W_K the wrong way round.", lambda q, k, v, h: (q.mT, k.mT, v)),
    ("queries-transposed", "You multiply by W_Q the wrong way round.", lambda q, k, v, h: (q.mT, k, v)),
    ("keys-transposed", "You multiply by W_K the wrong way round.", lambda q, k, v, h: (q, k.mT, v)),
    ("values-transposed", "You multiply by W_V the wrong way round.", lambda q, k, v, h: (q, k, v.mT)),
    (
        "qkv-by-head",
        "You split the joint product as (heads 3 d_head); it should be (3 heads d_head).",
        lambda q, k, v, h: cut((q, k, v), h, 3, -1),
    ),
    (
        "qkv-by-row",
        "You split the joint product as (d_model 3); it should be (3 d_model).",
        lambda q, k, v, h: cut((q, k, v), -1, 3),
    ),
    (
        "own-slice",
        "The input is cut into heads before it is projected, so each head sees only its part of it.",
        lambda q, k, v, h: tuple(within_slice(W, h) for W in (q, k, v)),
    ),
    (
        "heads-overlap",
        "Head h begins at row h of W_Q, W_K and W_V; it should begin at row h · d_head.",
        lambda q, k, v, h: tuple(overlapping(W, h) for W in (q, k, v)),
    ),
    asks_of={
        **dict.fromkeys(
            ("qkv-by-head", "qkv-by-row"),
            "In which order do the features of the joint product stand: first all queries, or first everything of "
            "head 0?",
        ),
        "heads-overlap": "Which rows of W_Q belong to head 0, and which to head 1?",
    },
)
SEQUENCES = ways_to(
    "sequences",
    "What do you do with the input before it is projected?",
    (
        "input-normalised",
        "Each token is normalised before it is projected.",
        lambda *sequences: tuple(F.layer_norm(x, x.shape[-1:]) for x in sequences),
    ),
)
SPLIT = ways_to(
    "split",
    "Which axes does your tensor have before and after each view or transpose? What does each head then hold?",
    (
        "split-by-view",
        "You split the heads with view or reshape and without a transpose.",
        lambda x, h: x.reshape(*x.shape[:-2], h, x.shape[-2], -1),
    ),
    (
        "split-inner",
        "You split the heads as (d_head heads); it should be (heads d_head).",
        lambda x, h: x.unflatten(-1, (-1, h)).movedim(-1, -3),
    ),
    ("one-head", "All rows share one head, whatever num_heads is.", lambda x, h: x.unsqueeze(-3)),
)
OVER = ways_to(
    "over",
    "Which two axes come last when attention is called, and which ones are batch-like?",
    (
        "over-heads",
        "You attend over the heads of one token, not over the tokens of one head.",
        lambda attend, allowed, *QKV: over_heads(attend, lambda Q, K: None, *QKV),
    ),
    (
        "over-heads-causal",
        "You attend over the heads of one token: each head sees itself and those before it.",
        over_heads,
    ),
    (
        "over-batch",
        "You attend over the first axis, the sequences of a batch, not over the tokens of one sequence.",
        along_first_axis,
    ),
    ("batch", "All sequences of a batch are one: each sees those before it.", in_one_sequence),
    ("heads-averaged", "The heads share their weights: they are averaged over the heads.", averaged),
)
ALLOWED = ways_to(
    "allowed",
    "May the token at position 2 look at itself? At the one at position 3? Which answers may the last token change?",
    ("mask-missing", "No token is hidden from any other: there is no causal mask in effect.", lambda at, Q, K: None),
    (
        "mask-peeks",
        "The mask is shifted by one: every token sees the next one.",
        lambda at, Q, K: causal(Q, 1),
    ),
    ("mask-strict", "The mask is shifted by one: no token sees itself.", lambda at, Q, K: causal(Q, -1)),
    (
        "mask-upper",
        "The mask is the upper triangle: every token sees itself and later ones.",
        lambda at, Q, K: causal(Q).mT,
    ),
    (
        "mask-inverted",
        "The mask is inverted: every token sees the later ones and no others.",
        lambda at, Q, K: ~causal(Q),
    ),
    ("mask-diagonal", "Every token sees itself alone.", lambda at, Q, K: causal(Q) & causal(Q).mT),
)
SCALE = ways_to(
    "scale",
    "How long are the two vectors whose dot product is a score?",
    (
        "scale-by-root-d_model",
        "You divide by √d_model, not by √d_head.",
        lambda Q, K, V: (Q.shape[-3] * Q.shape[-1]) ** -0.5,
    ),
    ("scale-by-root-heads", "You divide by √num_heads, not by √d_head.", lambda Q, K, V: Q.shape[-3] ** -0.5),
    ("scale-by-d_model", "You divide by d_model, not by √d_head.", lambda Q, K, V: 1 / (Q.shape[-3] * Q.shape[-1])),
)
HIDE = ways_to(
    "hide",
    "How does your code tell a score that the mask hides from one that happens to be 0?",
    (
        "zero-scores",
        "A score of 0 is taken for one that is hidden.",
        lambda S, mask, softmax: softmax(S.masked_fill(~mask | (S == 0), -torch.inf)),
    ),
)
INPUTS = ways_to(
    "inputs",
    "What are the scores made of: the projections, or something made of these?",
    (
        "queries-keys-normalised",
        "Queries and keys are normalised in each head.",
        lambda Q, K, V: (F.normalize(Q, dim=-1) * Q.shape[-1] ** 0.5, F.normalize(K, dim=-1) * K.shape[-1] ** 0.5, V),
    ),
    (
        "queries-keys-normalised",
        "Queries and keys are normalised in each head.",
        lambda Q, K, V: (F.layer_norm(Q, Q.shape[-1:]), F.layer_norm(K, K.shape[-1:]), V),
    ),
)
MERGE = ways_to(
    "merge",
    "Which axes does your tensor have before and after each rearrange, view or transpose? What meets W_O then?",
    (
        "join-by-view",
        "You join the heads with view or reshape and without a transpose.",
        lambda x: x.reshape(*x.shape[:-3], x.shape[-2], -1),
    ),
    (
        "join-inner",
        "You join the heads as (d_head heads); it should be (heads d_head).",
        lambda x: x.movedim(-3, -1).flatten(-2),
    ),
    (
        "join-transposed",
        "You transpose the tokens and the features of each head, and then join them with view or reshape.",
        lambda x: x.mT.reshape(*x.shape[:-3], x.shape[-2], -1),
    ),
)
JOINED = ways_to(
    "joined",
    "What becomes of the joined heads? Which axis of W_O should meet them, the first or the second?",
    ("output-unused", "You leave out the output projection.", lambda linear, x, W, h: x),
    ("output-transposed", "You multiply by W_O the wrong way round.", lambda linear, x, W, h: linear(x, W.mT)),
    ("output-averaged", "You divide by the number of heads.", lambda linear, x, W, h: linear(x, W) / h),
    (
        "output-normalised",
        "The answer is normalised.",
        lambda linear, x, W, h: F.layer_norm(linear(x, W), x.shape[-1:]),
    ),
)
ANSWER = ways_to(
    "answer",
    "What belongs to multi-head attention, and what to the block of the model that it is used in?",
    ("residual", "The input is added to the answer.", lambda y, query: y + query),
)
IN_HEADS = (*WEIGHTS, *SEQUENCES, *SPLIT, *OVER, *SCALE, *MERGE, *JOINED, *ANSWER)
COMMON = {
    *("scale-missing", "scale-by-d_k", "scale-multiplied", "scale-base-2", "scale-constant", "scale-by-half-d_k"),
    *("scale-by-root-keys", "scale-fourth-root", "scores-transposed", "scores-cosine-scaled", "scale-after-softmax"),
    *("mask-zero", "mask-after-softmax", "mask-added", "mask-on-values", "mask-between-softmaxes"),
    *("softmax-over-queries", "softmax-dim-1", "softmax-over-batch", "no-softmax", "softmax-no-maximum"),
    *("softmax-over-both", "softmax-twice", "softmax-keepdim", "softmax-sum-over-queries", "sigmoid"),
    *("weights-transposed", "values-averaged", "queries-added"),
}
OF_ATTENTION = attention.TABLE.changes
IN_ATTENTION = (*HIDE, *INPUTS, *(row for row in OF_ATTENTION if row.id in COMMON))

CUTS = tuple(
    replace(cut, says=cut.says.replace("d_k", "d_head"), asks=cut.asks.replace("d_k", "d_head"))
    for cut in attention.CUTS
)


def without_positions(given: Tensor | None, x: Tensor, max_seq_len: int) -> Tensor:
    return torch.zeros(x.shape[-2]) if given is None else place(given, x)


def whole_table(given: Tensor | None, x: Tensor, max_seq_len: int) -> Tensor:
    return torch.arange(max_seq_len) if given is None else place(given, x)


def first_positions(given: Tensor | None, x: Tensor, max_seq_len: int) -> Tensor:
    return place(given if given is None else given.reshape(-1, x.shape[-2])[0], x)


def rotated_before_projection(*of_input: bool) -> Way:
    """RoPE of these of the three inputs, in place of that of the queries and keys."""

    def rotated(rotate: Way) -> tuple[Way, Way]:
        def rotate_inputs(*sequences: Tensor) -> tuple[Tensor, ...]:
            pairs = zip(sequences, of_input, strict=True)
            return tuple(rotate(x.unsqueeze(-3)).squeeze(-3) if turn else x for x, turn in pairs)

        return rotate_inputs, lambda x: x

    return rotated


def backwards(rotate: Way) -> Way:
    """The opposite rotation: the same one of pairs whose components have changed places."""

    def swap(x: Tensor) -> Tensor:
        is_odd = x.shape[-1] % 2  # which it may be without RoPE
        return x if is_odd else x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)

    return lambda x: swap(rotate(swap(x)))


def along_heads(x: Tensor, *others: Any) -> Tensor:
    return rope(x.transpose(-3, -2), *others).transpose(-3, -2)


TURN = ways_to(
    "turn",
    "Which of Q, K and V does RoPE apply to, and at what point: before the split into heads, after it, or later?",
    (
        "rope-missing",
        "The queries and keys are not rotated, or all tokens of a head are rotated alike.",
        lambda Q, K, V, turn, attend: attend(Q, K, V),
    ),
    ("rope-on-values", "The values are rotated, too.", lambda Q, K, V, turn, attend: attend(turn(Q), turn(K), turn(V))),
    (
        "rope-on-queries-only",
        "You rotate the queries and not the keys.",
        lambda Q, K, V, turn, attend: attend(turn(Q), K, V),
    ),
    (
        "rope-on-keys-only",
        "You rotate the keys and not the queries.",
        lambda Q, K, V, turn, attend: attend(Q, turn(K), V),
    ),
    (
        "rope-after-attention",
        "You rotate the output of attention, not the queries and keys that go into it.",
        lambda Q, K, V, turn, attend: turn(attend(Q, K, V)),
    ),
    (
        "rope-keys-backwards",
        "Keys are rotated in the opposite direction of queries, so a score depends on the sum of two positions, not on "
        "their difference.",
        lambda Q, K, V, turn, attend: attend(turn(Q), backwards(turn)(K), V),
    ),
    asks_of={"rope-keys-backwards": "By which angle does a query at position 5 end up from a key at position 3?"},
)
ROTATED = ways_to(
    "rotated",
    "What does RoPE rotate: the input of the projections, or what comes out of them?",
    (
        "rope-on-input",
        "You rotate the input before it is projected, by the angles of d_model. It is the queries and keys of each "
        "head that should be rotated.",
        rotated_before_projection(True, True, True),
    ),
    (
        "rope-on-input",
        "For queries and keys, you rotate the input before it is projected, by the angles of d_model. It is the "
        "queries and keys of each head that should be rotated.",
        rotated_before_projection(True, True, False),
    ),
)
POSITIONS = ways_to(
    "positions",
    "Which shapes may `token_positions` have, what holds when nobody passes them, and which axis do all heads share?",
    (
        "rope-positions-ignored",
        "Tokens are counted from 0, whatever `token_positions` says.",
        lambda given, x, max_seq_len: place(None, x),
    ),
    (
        "rope-default-positions",
        "Nothing is rotated, or all tokens of a head alike, when no `token_positions` are given.",
        without_positions,
    ),
    (
        "rope-default-heads",
        "When no `token_positions` are given, yours count the heads, not the tokens.",
        lambda given, x, max_seq_len: torch.arange(x.shape[-3]) if given is None else place(given, x),
    ),
    (
        "rope-default-table",
        "When no `token_positions` are given, yours are all from 0 to max_seq_len - 1, however many tokens there are.",
        whole_table,
    ),
    ("rope-first-sequence", "You use the positions of the first sequence for all of them.", first_positions),
    (
        "rope-positions-by-head",
        "Head 0 gets the positions of sequence 0, head 1 those of sequence 1, and so on.",
        lambda given, x, max_seq_len: place(None, x) if given is None else given,
    ),
    (
        "rope-positions-truth",
        "`token_positions or …` asks whether a tensor is true; compare it with None.",
        lambda given, x, max_seq_len: place(given or None, x),
    ),
    (
        "rope-table-too-short",
        "Your tables of cosines and sines have as many rows as there are tokens; positions go up to max_seq_len - 1.",
        lambda given, x, max_seq_len: torch.arange(x.shape[-2])[place(given, x)],
    ),
    asks_of={
        "rope-positions-ignored": "Where does your code read `token_positions`?",
        "rope-positions-truth": "What is the truth of a tensor of five numbers?",
        "rope-table-too-short": "How many rows does your table have, and which positions may be asked for?",
    },
)
ROTATE = ways_to(
    "rotate",
    "Which two components form a pair, and by which angle does pair i of a head rotate at position p?",
    (
        "rope-before-split",
        "You rotate before the split into heads, by the angles of d_model, not of d_head.",
        turned_by(lambda i, d_head, head: -2 * (i + head * (d_head // 2)) / (d_head * len(head))),
    ),
    (
        "rope-exponent-d_model",
        "Your exponent divides by d_model, not by d_head.",
        turned_by(lambda i, d_head, head: -2 * i / (d_head * len(head))),
    ),
    ("rope-along-heads", "Each head is rotated by a position of its own, and all its tokens alike.", along_heads),
    (
        "rope-theta-ignored",
        "The angles are those of theta = {}, whatever theta is.",
        lambda x, at, theta, max_seq_len, c: rope(x, at, c, max_seq_len),
        (1e4, THETA),
    ),
    asks_of={"rope-theta-ignored": "Follow `theta` from the call to the angles: which value arrives there?"},
)


def in_heads(change: Change) -> Change:
    """A mistake of RoPE, made in every head."""

    def rotate(x: Tensor, positions: Tensor, theta: float, max_seq_len: int) -> Tensor:
        return rope_in_steps.run_rope(
            {**rope_in_steps.RIGHT, change.step: change}, x.shape[-1], theta, max_seq_len, x, positions
        )

    says = change.says.replace("d_k", "d_head")
    return Change("rotate", f"rope-{change.id}", rotate, says, change.asks.replace("d_k", "d_head"))


# Those of which the products of queries and keys, which have them alike, show nothing, or not which one it is.
ALIKE = ("concatenated", "swapped", "order", "reflection", "sines-for-cosines", "signs")
OF_ROPE = tuple(
    in_heads(change)
    for change in (*rope_in_steps.PAIRS, *rope_in_steps.FREQUENCIES, *rope_in_steps.MATRIX, *rope_in_steps.ANGLE)
    if not change.numbers and change.id not in (*ALIKE, "theta-ignored")
)
BY_POSITION = ways_to(
    "allowed",
    "Which tokens come before the second one when positions repeat, or go back?",
    (
        "mask-by-position",
        "The causal mask compares token_positions; it should compare places in the sequence.",
        lambda at, Q, K: causal(Q) if at is None else at[..., None, :, None] >= at[..., None, None, :],
    ),
)

# The calls: sizes that are all different, and some that are alike.


def normal(*shape: int) -> Tensor:
    return random(6, *shape)


def call(*shape: int, heads: int = 3, size: float = 0.5) -> tuple[Any, ...]:
    """The arguments of a call for (..., sequence, d_model)."""
    return shape[-1], heads, *size * normal(4, shape[-1], shape[-1]), normal(*shape)


def at(positions: Any, arguments: tuple[Any, ...], theta: float = THETA) -> tuple[Any, ...]:
    """The same call with RoPE."""
    return *arguments, MAX_SEQ_LEN, theta, None if positions is None else torch.tensor(positions)


HIGH = "For scores in the hundreds"
ONE, FIVE, TWO_HEADS, BATCH, SQUARE = call(1, 12), call(5, 12), call(7, 12, heads=2), call(2, 5, 12), call(3, 3, 12)
LARGE = call(5, 12, size=4.0)
WITH_NOTHING = (*FIVE[:-1], FIVE[-1] * torch.tensor([1, 0, 1, 1, 0]).unsqueeze(-1))
CALLS = {
    "For one token": ONE,
    "For five tokens": FIVE,
    "For two heads": TWO_HEADS,
    "For a batch of two": BATCH,
    "For a batch of 2 by 3": call(2, 3, 5, 12),
    "For three sequences of three tokens in three heads": SQUARE,
    "For four tokens in heads of length 4": call(2, 4, 12),
    "For one head": call(2, 5, 6, heads=1),
    "For tokens of zeros": WITH_NOTHING,
    HIGH: LARGE,
}
AT_ZERO = {
    "For one token": at([0], ONE),
    "For five tokens, all at position 0": at([0] * 5, FIVE),
    "For two heads and tokens that are all at position 0": at([0] * 7, TWO_HEADS),
    "For a batch of two with all tokens at position 0": at([0] * 5, BATCH),
    "For three sequences of three tokens, all at position 0": at([0] * 3, SQUARE),
    "For tokens of zeros": at([0] * 5, WITH_NOTHING),
}
CALLS_WITH_ROPE = {
    **AT_ZERO,
    "For five tokens in order": at(range(5), FIVE),
    "For positions that repeat and go back": at([3, 0, 7, 7, 2], FIVE),
    "For a batch of two and positions (3, 0, 7, 1, 2)": at([3, 0, 7, 1, 2], BATCH),
    "For a batch of two with positions of their own": at([[3, 0, 7, 1, 2], [1, 5, 0, 2, 9]], BATCH),
    "For three sequences of three tokens in three heads": at([[3, 0, 7], [1, 5, 0], [2, 2, 8]], SQUARE),
    "Without token_positions": at(None, FIVE),
    "For two heads": at([0, 2, 1, 4, 3, 6, 5], TWO_HEADS),
    HIGH: at([0] * 5, LARGE),
    "For theta = 9": at([3, 0, 7, 1, 2], FIVE, OTHER_THETA),
}


def table(calls: dict[str, tuple[Any, ...]], basic: Sequence[str], basic_words: str, *more: Change) -> Table:
    changes = (*IN_HEADS, *ALLOWED, *more, *IN_ATTENTION)
    return Table(
        multihead, RIGHT, changes, calls, frozenset(basic), ALSO_RIGHT, basic_words, tuple(basic[1:4]), cuts=CUTS
    )


ONE_SEQUENCE = [call for call, (*_, x) in CALLS.items() if x.ndim == 2 and call != HIGH]
TABLE = table(CALLS, ONE_SEQUENCE, "for one sequence")
WITH_ROPE = table(
    CALLS_WITH_ROPE,
    list(AT_ZERO),
    "with all tokens at position 0",
    *BY_POSITION,
    *TURN,
    *ROTATED,
    *POSITIONS,
    *ROTATE,
    *OF_ROPE,
)
