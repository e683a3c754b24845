"""What decoding gives in float64, in a loop over the heads, and how far a right program may round."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_staff.authoring.rounding import Bounded, Rounded, joined
from cs336_staff.problems.rope.reference import rotate, run_rope
from cs336_staff.problems.scaled_dot_product_attention.reference import (
    bound_scaled_dot_product_attention,
    run_scaled_dot_product_attention,
)

CACHED = ("cached keys", "cached values")


def run_decoding(
    d_model: int,
    num_heads: int,
    num_kv_heads: int,
    window: int | None,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    keys: Tensor | None = None,
    values: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    positions, mask = places(window, in_features, keys)

    def heads_of(weight: Tensor, count: int, turns: bool) -> list[Tensor]:
        heads = (F.linear(in_features, W) for W in weight.chunk(count))
        return [run_rope(d_model // num_heads, theta, max_seq_len, x, positions) if turns else x for x in heads]

    K, V = heads_of(k_proj_weight, num_kv_heads, True), heads_of(v_proj_weight, num_kv_heads, False)
    if keys is not None and values is not None:
        K = [torch.cat(pair, -2) for pair in zip(keys.unbind(-3), K, strict=True)]
        V = [torch.cat(pair, -2) for pair in zip(values.unbind(-3), V, strict=True)]
    heads = [
        run_scaled_dot_product_attention(Q, K[h * num_kv_heads // num_heads], V[h * num_kv_heads // num_heads], mask)
        for h, Q in enumerate(heads_of(q_proj_weight, num_heads, True))
    ]
    return F.linear(torch.cat(heads, -1), o_proj_weight), torch.stack(K, -3), torch.stack(V, -3)


def places(window: int | None, x: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """The positions of the new tokens, and the mask under which each sees the last `window` tokens up to itself."""
    total = x.shape[-2] + (0 if keys is None else keys.shape[-2])
    positions = torch.arange(total)
    new = positions[total - x.shape[-2] :]
    sees = [[max(0, i + 1 - (window or total)) <= j <= i for j in range(total)] for i in new.tolist()]
    return new, torch.tensor(sees)


def bound_decoding(
    num_heads: int,
    num_kv_heads: int,
    window: int | None,
    theta: float,
    q_proj_weight: Rounded,
    k_proj_weight: Rounded,
    v_proj_weight: Rounded,
    o_proj_weight: Rounded,
    in_features: Rounded,
    keys: Rounded | None = None,
    values: Rounded | None = None,
    cotangent: Rounded | None = None,
    **sizes: int,
) -> Bounded:
    x, group = in_features, num_heads // num_kv_heads
    positions, mask = places(window, x.value, keys and keys.value)

    def heads_of(weight: Rounded, count: int) -> list[Rounded]:
        return [x @ weight.map(lambda W, h=h: W.chunk(count)[h]).mT for h in range(count)]

    Q = [rotate(head, theta, positions) for head in heads_of(q_proj_weight, num_heads)]
    K = [rotate(head, theta, positions) for head in heads_of(k_proj_weight, num_kv_heads)]
    V = heads_of(v_proj_weight, num_kv_heads)
    if keys is not None and values is not None:
        K, V = (
            [joined([old.map(lambda x, h=h: x[..., h, :, :]), new], along(-2)) for h, new in enumerate(heads)]
            for old, heads in ((keys, K), (values, V))
        )
    of_answer = None if cotangent is None else cotangent @ o_proj_weight
    heads = [
        bound_scaled_dot_product_attention(
            Q[h],
            K[h // group],
            V[h // group],
            mask,
            of_answer and of_answer.map(lambda x, h=h: x.chunk(num_heads, -1)[h]),
        )
        for h in range(num_heads)
    ]
    answer = joined([head["answer"] for head in heads], along(-1))
    kept = (joined(x, lambda parts: torch.stack(parts, -3)) for x in (K, V))
    found = {"answer": answer @ o_proj_weight.mT, **dict(zip(CACHED, kept, strict=True))}
    if cotangent is None:
        return found

    def slope(what: str, turns: bool, group: int) -> Rounded:
        """The gradient of what is projected, new rows alone, each head summed over those that share it."""
        slopes = [head[f"gradient of {what}"].map(lambda x: x[..., -len(positions) :, :]) for head in heads]
        summed = [reduce(add, slopes[h : h + group]) for h in range(0, num_heads, group)]
        return joined([rotate(s, theta, -positions) if turns else s for s in summed], along(-1))

    projections = {
        "q": (q_proj_weight, slope("Q", True, 1)),
        "k": (k_proj_weight, slope("K", True, group)),
        "v": (v_proj_weight, slope("V", False, group)),
    }
    rows = {name: (of, x) for name, (_, of) in projections.items()} | {"o": (cotangent, answer)}
    found |= {f"gradient of {name}_proj_weight": flat(of).mT @ flat(x) for name, (of, x) in rows.items()}
    found["gradient of in_features"] = reduce(add, (of @ W for W, of in projections.values()))
    return found


def along(axis: int) -> Callable[[Sequence[Tensor]], Tensor]:
    return lambda parts: torch.cat(list(parts), axis)


def flat(x: Rounded) -> Rounded:
    return x.map(lambda x: x.flatten(0, -2))
