import torch
from beartype import beartype
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from cs336_basics.layers import Linear, softmax


@jaxtyped(typechecker=beartype)
def scaled_dot_product_attention(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "... queries d_v"]:
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5
    if mask is None:
        mask = torch.ones((), dtype=torch.bool)
    # min - max overflows to -inf, whose exponential is 0, so hidden keys get exactly nothing
    scores = scores.masked_fill(~mask, torch.finfo(wide).min)
    weights = softmax(scores, -1) * mask
    return einsum(weights, V.to(wide), "... q k, ... k d -> ... q d").to(Q.dtype)


@jaxtyped(typechecker=beartype)
def rotary(
    x: Float[Tensor, "*lead t d"], positions: Int[Tensor, "*#lead t"], theta: float
) -> Float[Tensor, "*lead t d"]:
    exponent = torch.arange(0, x.shape[-1], 2) / x.shape[-1]
    angles = einsum(positions, theta**-exponent, "... t, pair -> ... t pair")
    x0, x1 = rearrange(x, "... (pair two) -> two ... pair", two=2)
    y0 = angles.cos() * x0 - angles.sin() * x1
    y1 = angles.sin() * x0 + angles.cos() * x1
    return rearrange([y0, y1], "two ... pair -> ... (pair two)")


@jaxtyped(typechecker=beartype)
def multi_head_attention(
    x: Float[Tensor, "*lead t m"],
    wq: Float[Tensor, "m m"],
    wk: Float[Tensor, "m m"],
    wv: Float[Tensor, "m m"],
    wo: Float[Tensor, "m m"],
    *,
    heads: int,
    theta: float | None = None,
    positions: Int[Tensor, "... t"] | None = None,
) -> Float[Tensor, "*lead t m"]:
    q, k, v = (rearrange(Linear(w)(x), "... t (h d) -> ... h t d", h=heads) for w in (wq, wk, wv))
    t = x.shape[-2]
    if theta is not None:
        p = torch.arange(t) if positions is None else positions
        p = rearrange(p, "... t -> ... 1 t")
        q, k = rotary(q, p, theta), rotary(k, p, theta)
    heads_out = scaled_dot_product_attention(q, k, v, torch.ones(t, t, dtype=torch.bool).tril())
    return Linear(wo)(rearrange(heads_out, "... h t d -> ... t (h d)"))
