"""Drawing the inputs of the adapters from a generator."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from cs336_staff.authoring.cases.spec import Inputs

HALF_PRECISION = {"float16": torch.float16, "bfloat16": torch.bfloat16}
FULL_PRECISION = {"float32": torch.float32, "float64": torch.float64}


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
    shift: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> Callable[[Generator], Inputs]:
    """`mask` names one of `MASKS`; `scale` is the spread of one query's logits, `shift` that of their levels."""

    def draw(generator: Generator) -> Inputs:
        others = batch if kv_batch is None else kv_batch
        Q = torch.randn(*batch, queries, d_k, generator=generator) * scale
        K = torch.randn(*others, keys, d_k, generator=generator)
        V = torch.randn(*others, keys, d_v, generator=generator)
        if shift:
            # The first component of every key is 1: that of a query moves all its logits.
            K[..., 0] = 1.0
            Q[..., 0] *= shift * math.sqrt(d_k)
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
    # In every block of queries but the first, the first block of keys is wholly hidden.
    "later keys": lambda batch, queries, keys, generator: torch.ones(queries, keys, dtype=torch.bool).triu(),
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
        inputs: Inputs = {"d_model": d_model, "num_heads": num_heads}
        if positions is not None:
            inputs |= {"max_seq_len": max_seq_len, "theta": theta}
        inputs |= _projections(d_model, generator)
        inputs["in_features"] = torch.randn(*batch, sequence, d_model, generator=generator)
        if positions is not None:
            inputs["token_positions"] = POSITIONS[positions](batch, sequence, max_seq_len, generator)
        return inputs

    return draw


def _projections(d_model: int, generator: Generator) -> Inputs:
    """The four weights of multi-head attention, larger than a trained layer's: attention is far from uniform."""
    return {
        f"{name}_proj_weight": 2 * torch.randn(d_model, d_model, generator=generator) / math.sqrt(d_model)
        for name in "qkvo"
    }


def attention_module(
    *batch: int,
    queries: int = 5,
    keys: int = 7,
    d_k: int = 11,
    d_v: int = 13,
    mask: str | None = None,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
    dropout: float = 0.0,
    training: bool = True,
) -> Callable[[Generator], Inputs]:
    """`mask` and `scale` as in `attention`."""
    drawing = attention(*batch, queries=queries, keys=keys, d_k=d_k, d_v=d_v, mask=mask, scale=scale, dtype=dtype)

    def draw(generator: Generator) -> Inputs:
        seed = int(torch.randint(1000, (), generator=generator))
        return drawing(generator) | {"dropout": dropout, "training": training, "seed": seed}

    return draw


def multihead_attention(
    *batch: int,
    queries: int = 5,
    keys: int = 7,
    d_model: int = 24,
    num_heads: int = 3,
    mask: str | None = None,
) -> Callable[[Generator], Inputs]:
    """`mask` names one of `HEAD_MASKS`."""

    def draw(generator: Generator) -> Inputs:
        inputs: Inputs = {"d_model": d_model, "num_heads": num_heads}
        inputs |= _projections(d_model, generator)
        lengths = {"query": queries, "key": keys, "value": keys}
        inputs |= {name: torch.randn(*batch, n, d_model, generator=generator) for name, n in lengths.items()}
        return inputs | {"mask": mask and HEAD_MASKS[mask](batch, num_heads, queries, keys, generator)}

    return draw


# What a mask of several heads may be: the batch-like dimensions, the number of heads, queries and keys give its shape.
HEAD_MASKS: dict[str, Callable[[tuple[int, ...], int, int, int, Generator], Tensor]] = {
    "padding": lambda batch, heads, queries, keys, generator: _random_mask((*batch, keys), generator),
    "full": lambda batch, heads, queries, keys, generator: _random_mask((*batch, queries, keys), generator),
    "same for all": lambda batch, heads, queries, keys, generator: _random_mask(
        (*(1 for _ in batch), queries, keys), generator
    ),
    "per head": lambda batch, heads, queries, keys, generator: _random_mask((*batch, heads, queries, keys), generator),
    # The first sequence is padding throughout.
    "nothing": lambda batch, heads, queries, keys, generator: torch.arange(batch[0]).unsqueeze(-1).expand(-1, keys) > 0,
}


def blockwise(*batch: int, block_size: int | None, d_k: int = 3, d_v: int = 2, **rest: Any) -> Callable[..., Inputs]:
    """`rest` is what `attention` takes besides; vectors are short, for many wrong answers are stored."""
    draw = attention(*batch, d_k=d_k, d_v=d_v, **rest)
    return lambda generator: draw(generator) | {"block_size": block_size}


def blockwise_by_hand(generator: Generator) -> Inputs:
    """The example of the online softmax in docs/assignment.md: one query, two blocks of two keys."""
    K, V = torch.tensor([[1.0], [0.0], [2.0], [1.0]]), torch.tensor([[4.0], [2.0], [1.0], [3.0]])
    return {"Q": torch.ones(1, 1), "K": K, "V": V, "mask": None, "block_size": 2}
