"""The cases that are stored: what each adapter is called with.

Sizes are different primes, so that a swapped axis has an illegal shape; the square cases have equal sizes, so that a
swapped axis has a legal shape and a wrong value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

Inputs = dict[str, Any]


@dataclass(frozen=True)
class CaseSpec:
    """How one case is made.

    Args:
        name: folder and file name of the case.
        call: the adapter that is called.
        draw: the arguments of the adapter, drawn from a generator.
        gradients: the arguments whose gradients are stored too.
    """

    name: str
    call: str
    draw: Callable[[Generator], Inputs]
    gradients: tuple[str, ...] = ()


def softmax(
    *shape: int,
    dim: int,
    scale: float = 1.0,
    shift: float = 0.0,
    hidden: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> Callable[[Generator], Inputs]:
    """`shift` is the distance between the levels of neighbouring slices, `hidden` the share of logits that are -inf."""

    def draw(generator: Generator) -> Inputs:
        x = torch.randn(shape, generator=generator) * scale
        x = x.movedim(dim, -1)
        x = x + shift * torch.randn((*x.shape[:-1], 1), generator=generator)
        # The first logit of a slice stays, so that no slice is all -inf.
        x[..., 1:][torch.rand(x[..., 1:].shape, generator=generator) < hidden] = -math.inf
        return {"in_features": x.movedim(-1, dim).to(dtype), "dim": dim}

    return draw


def attention(
    *batch: int,
    queries: int = 5,
    keys: int = 7,
    d_k: int = 11,
    d_v: int = 13,
    kv_batch: tuple[int, ...] | None = None,
    mask: str | None = None,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> Callable[[Generator], Inputs]:
    """`mask` names one of `MASKS`; `scale` is the standard deviation of the logits."""

    def draw(generator: Generator) -> Inputs:
        others = batch if kv_batch is None else kv_batch
        Q = torch.randn(*batch, queries, d_k, generator=generator) * scale
        K = torch.randn(*others, keys, d_k, generator=generator)
        V = torch.randn(*others, keys, d_v, generator=generator)
        drawn = None if mask is None else MASKS[mask](batch, queries, keys, generator)
        return {"Q": Q.to(dtype), "K": K.to(dtype), "V": V.to(dtype), "mask": drawn}

    return draw


def _random_mask(shape: tuple[int, ...], generator: Generator) -> Tensor:
    """About half the places True, and at least one in every row."""
    mask = torch.rand(shape, generator=generator) < 0.5
    some_key = torch.randint(shape[-1], (*shape[:-1], 1), generator=generator)
    return mask.scatter(-1, some_key, torch.ones_like(mask[..., :1]))


def _padding_mask(batch: tuple[int, ...], queries: int, keys: int, generator: Generator) -> Tensor:
    """(batch, 1, ..., 1, keys): the first keys of a sequence are real; their number differs, and one is whole."""
    lengths = torch.randperm(keys, generator=generator)[: batch[0]] + 1
    lengths[-1] = keys
    return (torch.arange(keys) < lengths.unsqueeze(-1)).view(batch[0], *(1 for _ in batch[1:]), 1, keys)


def _mask_with_empty_rows(batch: tuple[int, ...], queries: int, keys: int, generator: Generator) -> Tensor:
    mask = _random_mask((queries, keys), generator)
    mask[1] = False
    mask[-1] = False
    return mask


MASKS: dict[str, Callable[[tuple[int, ...], int, int, Generator], Tensor]] = {
    "causal": lambda batch, queries, keys, generator: torch.ones(queries, keys, dtype=torch.bool).tril(),
    "random": lambda batch, queries, keys, generator: _random_mask((queries, keys), generator),
    "full": lambda batch, queries, keys, generator: _random_mask((*batch, queries, keys), generator),
    "padding": _padding_mask,
    "empty rows": _mask_with_empty_rows,
}


def by_hand(generator: Generator) -> Inputs:
    """The example that docs/assignment.md works by hand."""
    X = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    return {"Q": X, "K": X.clone(), "V": X.clone(), "mask": None}


def linear(*batch: int, d_in: int, d_out: int) -> Callable[[Generator], Inputs]:
    def draw(generator: Generator) -> Inputs:
        return {
            "d_in": d_in,
            "d_out": d_out,
            "weights": torch.randn(d_out, d_in, generator=generator) / math.sqrt(d_in),
            "in_features": torch.randn(*batch, d_in, generator=generator),
        }

    return draw


def rope(
    *batch: int, positions: str, sequence: int = 5, d_k: int = 14, theta: float = 10000.0, max_seq_len: int = 1000
) -> Callable[[Generator], Inputs]:
    """`positions` names one of `POSITIONS`."""

    def draw(generator: Generator) -> Inputs:
        return {
            "d_k": d_k,
            "theta": theta,
            "max_seq_len": max_seq_len,
            "in_query_or_key": torch.randn(*batch, sequence, d_k, generator=generator),
            "token_positions": POSITIONS[positions](batch, sequence, max_seq_len, generator),
        }

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


def multihead(
    *batch: int,
    positions: str | None = None,
    sequence: int = 7,
    d_model: int = 24,
    num_heads: int = 3,
    theta: float = 10000.0,
    max_seq_len: int = 100,
) -> Callable[[Generator], Inputs]:
    """With RoPE when `positions` names one of `POSITIONS`."""

    def draw(generator: Generator) -> Inputs:
        def weights() -> Tensor:
            # Larger than a trained layer's, so that attention is far from uniform.
            return 2 * torch.randn(d_model, d_model, generator=generator) / math.sqrt(d_model)

        inputs: Inputs = {"d_model": d_model, "num_heads": num_heads}
        if positions is not None:
            inputs |= {"max_seq_len": max_seq_len, "theta": theta}
        inputs |= {f"{name}_proj_weight": weights() for name in "qkvo"}
        inputs["in_features"] = torch.randn(*batch, sequence, d_model, generator=generator)
        if positions is not None:
            inputs["token_positions"] = POSITIONS[positions](batch, sequence, max_seq_len, generator)
        return inputs

    return draw


def _specs(
    folder: str, call: str, draws: dict[str, Callable[[Generator], Inputs]], gradients: tuple[str, ...] = ()
) -> list[CaseSpec]:
    return [CaseSpec(f"{folder}/{name}", call, draw, gradients) for name, draw in draws.items()]


PUBLIC: list[CaseSpec] = [
    *_specs(
        "softmax",
        "run_softmax",
        {
            "1d": softmax(7, dim=0),
            "2d-first-dim": softmax(3, 5, dim=0),
            "3d-first-dim": softmax(2, 5, 7, dim=0),
            "3d-middle-dim": softmax(2, 5, 7, dim=1),
            "3d-last-dim": softmax(2, 5, 7, dim=-1),
            "4d-negative-dim": softmax(2, 3, 5, 7, dim=-2),
            "square": softmax(5, 5, 5, dim=1),
            "large-logits": softmax(3, 5, dim=-1, scale=1e4),
            "slices-far-apart": softmax(3, 5, dim=-1, shift=300.0),
            "some-minus-infinity": softmax(3, 11, dim=-1, hidden=0.4),
            "float16": softmax(3, 101, dim=-1, dtype=torch.float16),
            "bfloat16": softmax(3, 101, dim=-1, dtype=torch.bfloat16),
            "float64": softmax(3, 5, dim=-1, dtype=torch.float64),
        },
    ),
    *_specs(
        "softmax-gradients",
        "run_softmax",
        {"last-dim": softmax(2, 5, 7, dim=-1), "middle-dim": softmax(2, 5, 7, dim=1)},
        gradients=("in_features",),
    ),
    *_specs(
        "attention",
        "run_scaled_dot_product_attention",
        {
            "3d-no-mask": attention(2),
            "3d-causal": attention(2, queries=7, mask="causal"),
            "3d-random-mask": attention(2, queries=7, mask="random"),
            "3d-more-keys": attention(2, d_k=16, d_v=20, mask="random"),
            "3d-more-queries": attention(2, queries=11, mask="random"),
            "3d-mask-per-batch": attention(2, mask="full"),
            "3d-padding": attention(3, mask="padding"),
            "3d-square": attention(4, queries=4, keys=4, d_k=4, d_v=4, mask="random"),
            "3d-square-causal": attention(4, queries=4, keys=4, d_k=4, d_v=4, mask="causal"),
            "3d-large-logits": attention(2, mask="random", scale=1e4),
            "3d-one-token": attention(2, queries=1, keys=1),
            "3d-in-float16": attention(2, mask="random", dtype=torch.float16),
            "3d-in-bfloat16": attention(2, mask="random", dtype=torch.bfloat16),
            "3d-in-float64": attention(2, mask="random", dtype=torch.float64),
            "4d-no-mask": attention(2, 3),
            "4d-causal": attention(2, 3, queries=7, mask="causal"),
            "4d-random-mask": attention(2, 3, queries=7, mask="random"),
            "4d-more-keys": attention(2, 3, d_k=16, d_v=20, mask="random"),
            "4d-mask-per-head": attention(2, 3, mask="full"),
            "4d-padding": attention(2, 3, mask="padding"),
            "4d-one-key-value-head": attention(2, 3, kv_batch=(2, 1), mask="random"),
            "4d-square": attention(4, 4, queries=4, keys=4, d_k=4, d_v=4, mask="random"),
            "other-by-hand": by_hand,
            "other-no-batch": attention(mask="random"),
            "other-five-batch-dims": attention(2, 1, 3, 1, 2, mask="random"),
        },
    ),
    *_specs(
        "attention-gradients",
        "run_scaled_dot_product_attention",
        {
            "3d-no-mask": attention(2),
            "3d-random-mask": attention(2, mask="random"),
            "4d-causal": attention(2, 3, queries=7, mask="causal"),
        },
        gradients=("Q", "K", "V"),
    ),
    *_specs(
        "attention-nothing",
        "run_scaled_dot_product_attention",
        {"3d": attention(2, mask="empty rows")},
    ),
    *_specs(
        "linear",
        "run_linear",
        {
            "vector": linear(d_in=5, d_out=7),
            "2d": linear(3, d_in=5, d_out=7),
            "3d": linear(2, 3, d_in=7, d_out=5),
            "square": linear(4, 4, d_in=4, d_out=4),
        },
    ),
    *_specs(
        "rope",
        "run_rope",
        {
            "no-batch": rope(positions="in order"),
            "in-order": rope(2, positions="in order"),
            "offset": rope(2, positions="offset"),
            "permuted": rope(2, positions="permuted"),
            "spaced": rope(2, positions="spaced"),
            "per-batch": rope(2, positions="per batch"),
            "per-batch-with-heads": rope(2, 3, positions="per batch, shared by heads"),
            "small-theta": rope(2, positions="offset", theta=100.0),
            "one-pair": rope(2, positions="offset", d_k=2),
            "one-token": rope(2, positions="offset", sequence=1),
            "longest-sequence": rope(2, positions="in order", sequence=11, max_seq_len=11),
            "square": rope(4, 4, positions="permuted", sequence=4, d_k=4),
        },
    ),
    *_specs(
        "multihead",
        "run_multihead_self_attention",
        {
            "3d": multihead(2),
            "no-batch": multihead(),
            "two-batch-dims": multihead(2, 5),
            "one-head": multihead(2, num_heads=1),
            "heads-of-one": multihead(2, d_model=5, num_heads=5),
            "one-token": multihead(2, sequence=1),
            "square": multihead(4, sequence=4, d_model=16, num_heads=4),
        },
    ),
    *_specs(
        "multihead-rope",
        "run_multihead_self_attention_with_rope",
        {
            "in-order": multihead(2, positions="in order"),
            "positions-not-given": multihead(2, positions="not given"),
            "offset": multihead(2, positions="offset"),
            "permuted": multihead(2, positions="permuted"),
            "spaced": multihead(2, positions="spaced"),
            "per-batch": multihead(2, positions="per batch"),
            "no-batch": multihead(positions="spaced"),
            "two-batch-dims": multihead(2, 5, positions="spaced"),
            "small-theta": multihead(2, positions="spaced", theta=100.0),
            "one-token": multihead(2, positions="spaced", sequence=1),
            "longest-sequence": multihead(2, positions="in order", sequence=11, max_seq_len=11),
            "square": multihead(4, positions="spaced", sequence=4, d_model=16, num_heads=4),
        },
    ),
]
