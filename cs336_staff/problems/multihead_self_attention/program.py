"""Multi-head attention in steps, and the mistakes that can be made in each.

The heads are slices; attention in each is that of its own room, with the mistakes that can be made there.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.table import Change, Way, Ways, ways_to
from cs336_staff.problems.rope import program as rope_in_steps
from cs336_staff.problems.scaled_dot_product_attention import program as attention


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
    ("queries-keys-swapped", lambda q, k, v, h: (k, q, v)),
    ("keys-values-swapped", lambda q, k, v, h: (q, v, k)),
    ("queries-values-swapped", lambda q, k, v, h: (v, k, q)),
    ("keys-by-q", lambda q, k, v, h: (q, q, v)),
    ("queries-by-k", lambda q, k, v, h: (k, k, v)),
    ("values-by-k", lambda q, k, v, h: (q, k, k)),
    ("values-by-q", lambda q, k, v, h: (q, k, q)),
    ("qkv-transposed", lambda q, k, v, h: (q.mT, k.mT, v.mT)),
    ("scores-transposed", lambda q, k, v, h: (q.mT, k.mT, v)),
    ("queries-transposed", lambda q, k, v, h: (q.mT, k, v)),
    ("keys-transposed", lambda q, k, v, h: (q, k.mT, v)),
    ("values-transposed", lambda q, k, v, h: (q, k, v.mT)),
    ("qkv-by-head", lambda q, k, v, h: cut((q, k, v), h, 3, -1)),
    ("qkv-by-row", lambda q, k, v, h: cut((q, k, v), -1, 3)),
    ("own-slice", lambda q, k, v, h: tuple(within_slice(W, h) for W in (q, k, v))),
    ("heads-overlap", lambda q, k, v, h: tuple(overlapping(W, h) for W in (q, k, v))),
)
SEQUENCES = ways_to(
    "sequences", ("input-normalised", lambda *sequences: tuple(F.layer_norm(x, x.shape[-1:]) for x in sequences))
)
SPLIT = ways_to(
    "split",
    ("split-by-view", lambda x, h: x.reshape(*x.shape[:-2], h, x.shape[-2], -1)),
    ("split-inner", lambda x, h: x.unflatten(-1, (-1, h)).movedim(-1, -3)),
    ("one-head", lambda x, h: x.unsqueeze(-3)),
)
OVER = ways_to(
    "over",
    ("over-heads", lambda attend, allowed, *QKV: over_heads(attend, lambda Q, K: None, *QKV)),
    ("over-heads-causal", over_heads),
    ("over-batch", along_first_axis),
    ("batch", in_one_sequence),
    ("heads-averaged", averaged),
)
ALLOWED = ways_to(
    "allowed",
    ("mask-missing", lambda at, Q, K: None),
    ("mask-peeks", lambda at, Q, K: causal(Q, 1)),
    ("mask-strict", lambda at, Q, K: causal(Q, -1)),
    ("mask-upper", lambda at, Q, K: causal(Q).mT),
    ("mask-inverted", lambda at, Q, K: ~causal(Q)),
    ("mask-diagonal", lambda at, Q, K: causal(Q) & causal(Q).mT),
)
SCALE = ways_to(
    "scale",
    ("scale-by-root-d_model", lambda Q, K, V: (Q.shape[-3] * Q.shape[-1]) ** -0.5),
    ("scale-by-root-heads", lambda Q, K, V: Q.shape[-3] ** -0.5),
    ("scale-by-d_model", lambda Q, K, V: 1 / (Q.shape[-3] * Q.shape[-1])),
)
HIDE = ways_to("hide", ("zero-scores", lambda S, mask, softmax: softmax(S.masked_fill(~mask | (S == 0), -torch.inf))))
INPUTS = ways_to(
    "inputs",
    (
        "queries-keys-normalised",
        lambda Q, K, V: (F.normalize(Q, dim=-1) * Q.shape[-1] ** 0.5, F.normalize(K, dim=-1) * K.shape[-1] ** 0.5, V),
    ),
    ("queries-keys-normalised", lambda Q, K, V: (F.layer_norm(Q, Q.shape[-1:]), F.layer_norm(K, K.shape[-1:]), V)),
)
MERGE = ways_to(
    "merge",
    ("join-by-view", lambda x: x.reshape(*x.shape[:-3], x.shape[-2], -1)),
    ("join-inner", lambda x: x.movedim(-3, -1).flatten(-2)),
    ("join-transposed", lambda x: x.mT.reshape(*x.shape[:-3], x.shape[-2], -1)),
)
JOINED = ways_to(
    "joined",
    ("output-unused", lambda linear, x, W, h: x),
    ("output-transposed", lambda linear, x, W, h: linear(x, W.mT)),
    ("output-averaged", lambda linear, x, W, h: linear(x, W) / h),
    ("output-normalised", lambda linear, x, W, h: F.layer_norm(linear(x, W), x.shape[-1:])),
)
ANSWER = ways_to("answer", ("residual", lambda y, query: y + query))
IN_HEADS = (*WEIGHTS, *SEQUENCES, *SPLIT, *OVER, *SCALE, *MERGE, *JOINED, *ANSWER)


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
    ("rope-missing", lambda Q, K, V, turn, attend: attend(Q, K, V)),
    ("rope-on-values", lambda Q, K, V, turn, attend: attend(turn(Q), turn(K), turn(V))),
    ("rope-on-queries-only", lambda Q, K, V, turn, attend: attend(turn(Q), K, V)),
    ("rope-on-keys-only", lambda Q, K, V, turn, attend: attend(Q, turn(K), V)),
    ("rope-after-attention", lambda Q, K, V, turn, attend: turn(attend(Q, K, V))),
    ("rope-keys-backwards", lambda Q, K, V, turn, attend: attend(turn(Q), backwards(turn)(K), V)),
)
ROTATED = ways_to(
    "rotated",
    ("rope-on-input", rotated_before_projection(True, True, True)),
    ("rope-on-input", rotated_before_projection(True, True, False)),
)
POSITIONS = ways_to(
    "positions",
    ("rope-positions-ignored", lambda given, x, max_seq_len: place(None, x)),
    ("rope-default-positions", without_positions),
    (
        "rope-default-heads",
        lambda given, x, max_seq_len: torch.arange(x.shape[-3]) if given is None else place(given, x),
    ),
    ("rope-default-table", whole_table),
    ("rope-first-sequence", first_positions),
    ("rope-positions-by-head", lambda given, x, max_seq_len: place(None, x) if given is None else given),
    ("rope-positions-truth", lambda given, x, max_seq_len: place(given or None, x)),
    ("rope-table-too-short", lambda given, x, max_seq_len: torch.arange(x.shape[-2])[place(given, x)]),
)
ROTATE = ways_to(
    "rotate",
    ("rope-before-split", turned_by(lambda i, d_head, head: -2 * (i + head * (d_head // 2)) / (d_head * len(head)))),
    ("rope-exponent-d_model", turned_by(lambda i, d_head, head: -2 * i / (d_head * len(head)))),
    ("rope-along-heads", along_heads),
    ("rope-theta-ignored", lambda x, at, theta, max_seq_len, c: rope(x, at, c, max_seq_len), (1e4, THETA)),
)


def in_heads(change: Change) -> Change:
    """A mistake of RoPE, made in every head."""

    def rotate(x: Tensor, positions: Tensor, theta: float, max_seq_len: int) -> Tensor:
        return rope_in_steps.run_rope(
            {**rope_in_steps.RIGHT, change.step: change}, x.shape[-1], theta, max_seq_len, x, positions
        )

    return Change("rotate", f"rope-{change.id}", rotate)


# Those of which the products of queries and keys, which have them alike, show nothing, or not which one it is.
ALIKE = ("concatenated", "swapped", "order", "reflection", "sines-for-cosines", "signs")
OF_ROPE = tuple(
    in_heads(change)
    for change in (*rope_in_steps.PAIRS, *rope_in_steps.FREQUENCIES, *rope_in_steps.MATRIX, *rope_in_steps.ANGLE)
    if not change.numbers and change.id not in (*ALIKE, "theta-ignored")
)
BY_POSITION = ways_to(
    "allowed",
    (
        "mask-by-position",
        lambda at, Q, K: causal(Q) if at is None else at[..., None, :, None] >= at[..., None, None, :],
    ),
)
