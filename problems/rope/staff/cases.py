"""Test cases for rotary position embedding, and positions that other problems use, too."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from whichline_grader.author import LEADING, Batch, CaseSpec, Inputs, Kinds, Spread, draw_one_axis, draw_size


def inputs(
    *batch: int, positions: str, sequence: int = 5, d_k: int = 14, theta: float = 10000.0, max_seq_len: int = 1000
) -> Callable[[Generator], Inputs]:
    """Draw inputs; `positions` names one of `POSITIONS`."""

    def draw(generator: Generator) -> Inputs:
        x = torch.randn(*batch, sequence, d_k, generator=generator)
        where = POSITIONS[positions](batch, sequence, max_seq_len, generator)
        numbers = {"d_k": d_k, "theta": theta, "max_seq_len": max_seq_len}
        return {**numbers, "in_query_or_key": x, "token_positions": where}

    return draw


POSITIONS: dict[str, Callable[[tuple[int, ...], int, int, Generator], Tensor | None]] = {
    "not given": lambda batch, sequence, most, generator: None,
    "in order": lambda batch, sequence, most, generator: torch.arange(sequence),
    "offset": lambda batch, sequence, most, generator: torch.arange(sequence) + 17,
    "permuted": lambda batch, sequence, most, generator: torch.randperm(sequence, generator=generator),
    "spaced": lambda batch, sequence, most, generator: (
        torch.randperm(most, generator=generator)[:sequence].sort().values
    ),
    "per batch": lambda batch, sequence, most, generator: torch.randint(most, (*batch, sequence), generator=generator),
    "per batch, shared by heads": lambda batch, sequence, most, generator: torch.randint(
        most, (batch[0], 1, sequence), generator=generator
    ),
}


# Positions that all sequences share. Of two neighbours here, at least one is not the row numbers plus a constant.
SHARED = ("permuted", "offset", "spaced", "in order")


PUBLIC = {
    "rope": {
        "no-batch": inputs(positions="in order"),
        "in-order": inputs(2, positions="in order"),
        "offset": inputs(2, positions="offset"),
        "permuted": inputs(2, positions="permuted"),
        "spaced": inputs(2, positions="spaced"),
        "per-batch": inputs(2, positions="per batch"),
        "per-batch-with-heads": inputs(2, 3, positions="per batch, shared by heads"),
        "small-theta": inputs(2, positions="offset", theta=100.0),
        "one-pair": inputs(2, positions="offset", d_k=2),
        "one-token": inputs(2, positions="offset", sequence=1),
        "longest-sequence": inputs(2, positions="in order", sequence=11, max_seq_len=11),
        "square": inputs(4, 4, positions="permuted", sequence=4, d_k=4),
    },
    "rope-gradients": {"spaced": inputs(2, positions="spaced"), "per-batch": inputs(2, positions="per batch")},
}


HIDDEN = {
    "rope": {
        "no-batch": inputs(positions="spaced", sequence=11),
        "offset": inputs(3, positions="offset", sequence=7, d_k=10),
        "permuted": inputs(3, positions="permuted", sequence=11, d_k=10),
        "spaced": inputs(3, 5, positions="spaced", sequence=7, d_k=6),
        "per-batch": inputs(3, positions="per batch", sequence=7),
        "per-batch-with-heads": inputs(3, 5, positions="per batch, shared by heads", sequence=7),
        "small-theta": inputs(3, positions="spaced", theta=50.0, max_seq_len=200),
        "large-theta": inputs(3, positions="spaced", theta=5e5),
        "longest-sequence": inputs(3, positions="in order", sequence=13, max_seq_len=13),
        "square": inputs(6, 6, positions="permuted", sequence=6, d_k=6),
    },
    "rope-gradients": {
        "permuted": inputs(3, positions="permuted", d_k=10),
        "two-batch-dims": inputs(3, 5, positions="spaced", d_k=6),
    },
}


def _draw_case(batch: Batch, positions: tuple[str, ...], random: Spread) -> CaseSpec:
    axes, where, sequence, pairs = batch(random), random.choice(positions), draw_size(random), draw_size(random)
    theta = random.choice((10000.0, 100.0))
    drawing = inputs(*axes, positions=where, sequence=sequence, d_k=2 * pairs, theta=theta)
    return CaseSpec("rope", "run_rope", drawing)


def kinds() -> Kinds:
    kinds = {kind: partial(_draw_case, batch, SHARED) for kind, batch in LEADING.items()}
    return {**kinds, "positions-per-batch": partial(_draw_case, draw_one_axis, ("per batch",))}
