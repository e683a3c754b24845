"""Asking multi-head attention what makes its values and its output: a single token attends to itself alone."""

from collections.abc import Callable

import torch
from torch import Tensor

from cs336_kit.examination.experiment import NoAnswerError
from cs336_kit.examination.heads import (
    CLOSE,
    D_HEAD,
    D_MODEL,
    HEADS,
    TINY,
    TOKENS,
    Finds,
    Heads,
    Weights,
    has_heads,
    normal,
)
from cs336_kit.examination.words import number

EYE = torch.eye(D_MODEL)
SHOWN = 3  # components of a token


def output(heads: Heads) -> Finds:
    """Read what a single token becomes if W_Q, W_K and W_V leave it as it is."""
    W_O = 2 * EYE + normal(D_MODEL, D_MODEL) / 4
    came, sees_itself = _of_single_tokens(heads, Weights(EYE, EYE, EYE, W_O))
    shown = f"With W_Q = W_K = W_V = 1, a token (1, 0, 0, ...) becomes {_begin(came[:, 0])}"
    heads.value_alone = True
    if _picks(torch.linalg.solve(W_O.double(), came)):
        return None
    if _picks(torch.linalg.solve(W_O.T.double(), came)):
        return heads.finding(
            "output-transposed",
            f"{shown}: that is the first row of W_O. It should be the first column, {_begin(W_O[:, 0])}.",
            "You multiply by W_O the wrong way round.",
            "Which axis of W_O should meet the joined heads, the first or the second?",
        )
    if _picks(came):
        heads.unused.add("o_proj_weight")
        return heads.finding(
            "output-unused",
            f"{shown}; it should become the first column of W_O, {_begin(W_O[:, 0])}.",
            "You leave out the output projection.",
            "Which of the four weights does your answer not depend on?",
        )
    if not sees_itself:
        return None
    heads.value_alone = False
    small = TINY * EYE  # heads that meet count alike
    plain = _of_single_tokens(heads, Weights(small, small, small, EYE))[0] / TINY
    others = plain[::D_HEAD, 0]
    if (others - 1 / HEADS).abs().max() < CLOSE:
        return heads.finding(
            "over-heads",
            f"With all scores equal, component 0 of a single token arrives in components 0, 4 and 8, which belong to "
            f"three heads, {number(others[0])} of it in each; it should stay where it is.",
            "You attend over the heads of one token, not over the tokens of one head.",
            "Which two axes must come last when attention is called, and which ones are batch-like?",
            has_heads,
        )
    j = int((plain - EYE).abs().amax(0).argmax())
    c = int((plain - EYE)[:, j].abs().argmax())
    return heads.finding(
        "single-token",
        f"With all scores equal and W_V = W_O = 1, component {c} of the answer to a single token is "
        f"{number(plain[c, j])} times its component {j}; it should be {number(EYE[c, j])} times that.",
        "",
        "A single token attends to itself alone. What else happens to its value on the way?",
    )


def _begin(row: Tensor) -> str:
    return f"({', '.join(map(number, row[:SHOWN]))}, ...)"


def _of_single_tokens(heads: Heads, weights: Weights) -> tuple[Tensor, bool]:
    """Find the matrix that multiplies single tokens; where they do not see themselves, tokens among equal ones."""
    tokens = (EYE + 0.1).unsqueeze(1)  # no score is 0
    came = heads.answers(weights, tokens)[:, 0]
    sees_itself = bool(came.isfinite().all() and came.abs().max() > TINY**2)
    if not sees_itself:
        answers = heads.answers(weights, tokens.expand(-1, TOKENS, -1))
        came = max(answers[:, 0], answers[:, -1], key=lambda answer: float(answer.nan_to_num().abs().sum()))
    return torch.linalg.solve(tokens[:, 0].double(), came).T, sees_itself


def _picks(matrix: Tensor) -> bool:
    """Say whether each row of a matrix picks one component."""
    ones = (matrix - 1).abs() < CLOSE
    return bool((ones.sum(1) == 1).all() and (matrix.abs() < CLOSE).logical_or(ones).all())


INNER = torch.arange(D_MODEL).view(D_HEAD, HEADS).T.flatten()
# In which order heads that are split, or joined, as (d_head heads) leave the components.
ORDERS = [order.tolist() for order in (torch.arange(D_MODEL), INNER, INNER.argsort())]


def values(heads: Heads) -> Finds:
    """Find which rows of which weight make a token's value. Later calls order the weights so that it is W_V."""
    if not heads.value_alone:
        raise NoAnswerError("a single token does not keep its value")
    joint = normal(3 * D_MODEL, D_MODEL).double()
    came, sees_itself = _of_single_tokens(heads, Weights(*joint.float().chunk(3), o=EYE))
    rows, columns = _sources(came, joint), _sources(came, torch.cat([weight.T for weight in joint.chunk(3)]))
    question = "Which rows of the joint weight are W_V? In which order do the two lines that join and cut it name them?"
    if columns is not None and (source := _only_weight(columns)) is not None:
        heads.values_transposed = True
        _swap_values(heads, source)
        name = heads.names[2]
        return heads.finding(
            "values-transposed",
            f"Component 0 of the value is made by column {columns[0] % D_MODEL} of {name}; it should be made by row 0 "
            "of W_V.",
            f"You multiply by {name} the wrong way round.",
            "Which axis of W_V should meet the input, the first or the second?",
        )
    if rows is None:
        return _other_values(heads, came, joint) if sees_itself else None
    source = _only_weight(rows)
    if source == 2 and (_cut_as(rows, lambda c: 2 * D_MODEL + c) or not sees_itself):
        return None
    first = next(c for c in range(D_MODEL) if rows[c] != 2 * D_MODEL + c)
    made = rows[first]
    name = heads.names[made // D_MODEL]
    measured = f"Component {first} of the value is made by row {made % D_MODEL} of {name}; it should be made by row "
    measured += f"{first} of W_V."
    if source == 2:
        heads.value_alone = False
        return heads.finding(
            "values-order", measured, "The rows of W_V, or the joined heads, are in a different order.", question
        )
    if source is not None:
        _swap_values(heads, source)
        return heads.finding(f"values-by-{name[-1].lower()}", measured, f"{name} makes the values.", question)
    if _cut_as(rows, lambda c: 3 * D_HEAD * (c // D_HEAD) + 2 * D_HEAD + c % D_HEAD):
        heads.correct = lambda weights: _joined(torch.stack(weights[:3]).unflatten(1, (HEADS, D_HEAD)), weights.o)
        means = "You cut the joint weight as (heads 3 d_head), not as (3 heads d_head)."
        return heads.finding("qkv-by-head", measured, means, question, has_heads)
    if _cut_as(rows, lambda c: 3 * c + 2):
        heads.correct = lambda weights: _joined(torch.stack(weights[:3]), weights.o)
        return heads.finding(
            "qkv-by-row", measured, "You cut the joint weight as (d_model 3), not (3 d_model).", question
        )
    return heads.finding("qkv-mixed", measured, "The joint weight is not cut the way it was joined.", question)


def _swap_values(heads: Heads, source: int) -> None:
    """Take weight number `source` for the one that makes the values, and W_V for its own."""
    if source != 2 and not _depends_on_values(heads):
        heads.unused.add("v_proj_weight")
        heads.scores_readable = False
    names = list(heads.names)
    names[source], names[2] = names[2], names[source]

    def correct(weights: Weights) -> Weights:
        q, k, v, o = weights
        made = [q, k, v.T if heads.values_transposed else v]
        made[source], made[2] = made[2], made[source]
        return Weights(*made, o=o)

    heads.names, heads.correct = (names[0], names[1], names[2]), correct


def _depends_on_values(heads: Heads) -> bool:
    q, k, v, other = normal(4, D_MODEL, D_MODEL) / 2
    x = normal(3, D_MODEL)
    return not torch.equal(heads.answer(Weights(q, k, v, EYE), x), heads.answer(Weights(q, k, other, EYE), x))


def _joined(kinds: Tensor, o: Tensor) -> Weights:
    """The kinds of weights (3, ...) cut into three after their rows have taken turns."""
    return Weights(*kinds.transpose(0, 1).reshape(3 * D_MODEL, D_MODEL).chunk(3), o=o)


def _only_weight(sources: list[int]) -> int | None:
    weights = {source // D_MODEL for source in sources}
    return weights.pop() if len(weights) == 1 else None


def _cut_as(rows: list[int], row: Callable[[int], int]) -> bool:
    return any(rows == [row(c) for c in order] for order in ORDERS)


def _sources(came: Tensor, rows: Tensor) -> list[int] | None:
    """Find which of `rows` each row of `came` equals; None if one of them does not equal any."""
    distance = (came.unsqueeze(1) - rows).abs().amax(-1)
    return distance.argmin(1).tolist() if distance.amin(1).max() < CLOSE else None


def _other_values(heads: Heads, came: Tensor, joint: Tensor) -> Finds:
    W_V = joint[2 * D_MODEL :]
    own = torch.block_diag(*[torch.ones(D_HEAD, D_HEAD)] * HEADS) > 0
    if came[~own].abs().max() < TINY and (came - W_V)[own].abs().max() < CLOSE:
        return heads.finding(
            "own-slice",
            f"The values of head 0 do not change with components {D_HEAD} to {D_MODEL - 1} of the input; they should.",
            "The input is cut into heads before it is projected, so each head sees only its part of it.",
            "Which components of a token should head 0 see: its own, or all? What do its rows of W_V multiply?",
            has_heads,
        )
    c = int((came - W_V).abs().amax(1).argmax())
    return heads.finding(
        "values",
        f"With W_O = 1, component {c} of the answer to a single token (1, 0, 0, ...) is {number(came[c, 0])}; it "
        f"should be {number(W_V[c, 0])}, which row {c} of W_V makes of it.",
        "",
        "Which row of W_V makes which component of the value?",
    )
