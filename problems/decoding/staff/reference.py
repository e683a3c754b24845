"""What decoding gives in float64, in a loop over the heads."""

import torch
from torch import Tensor

from problems.linear.staff.reference import apply_linear
from problems.rope.staff.reference import run_rope
from problems.scaled_dot_product_attention.staff.reference import run_scaled_dot_product_attention

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
        heads = (apply_linear(in_features, W) for W in weight.chunk(count))
        return [run_rope(d_model // num_heads, theta, max_seq_len, x, positions) if turns else x for x in heads]

    K, V = heads_of(k_proj_weight, num_kv_heads, True), heads_of(v_proj_weight, num_kv_heads, False)
    if keys is not None and values is not None:
        K = [torch.cat(pair, -2) for pair in zip(keys.unbind(-3), K, strict=True)]
        V = [torch.cat(pair, -2) for pair in zip(values.unbind(-3), V, strict=True)]
    heads = [
        run_scaled_dot_product_attention(Q, K[h * num_kv_heads // num_heads], V[h * num_kv_heads // num_heads], mask)
        for h, Q in enumerate(heads_of(q_proj_weight, num_heads, True))
    ]
    return apply_linear(torch.cat(heads, -1), o_proj_weight), torch.stack(K, -3), torch.stack(V, -3)


def places(window: int | None, x: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
    """The positions of the new tokens, and the mask under which each sees the last `window` tokens up to itself."""
    total = x.shape[-2] + (0 if keys is None else keys.shape[-2])
    positions = torch.arange(total)
    new = positions[total - x.shape[-2] :]
    sees = [[max(0, i + 1 - (window or total)) <= j <= i for j in range(total)] for i in new.tolist()]
    return new, torch.tensor(sees)
