from collections.abc import Iterable

import torch
from torch import Tensor

type Weights = tuple[Tensor, Tensor, Tensor, Tensor]
type Mask = Tensor | None


def first[T](items: Iterable[T]) -> T:
    return next(iter(items))


def softmax[T: Tensor](x: T, dim: int) -> T:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    e = torch.exp(wide - first(wide.max(dim, keepdim=True)))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Mask = None) -> Tensor:
    shapes = {"Q": Q, "K": K, "V": V}
    assert Q.shape[-1] == K.shape[-1], f"shapes {", ".join(f"{n}={tuple(t.shape)}" for n, t in shapes.items())}"
    q, k, v = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (Q, K, V))
    s = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf"))
        s = s.where(mask.any(-1, keepdim=True), 0.0)
        return (softmax(s, -1).masked_fill(~mask, 0.0) @ v).to(Q.dtype)
    return (softmax(s, -1) @ v).to(Q.dtype)


def linear(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


def rope(x: Tensor, p: Tensor, theta: float) -> Tensor:
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    x0, x1 = x[..., 0::2], x[..., 1::2]
    return torch.stack((x0 * a.cos() - x1 * a.sin(), x0 * a.sin() + x1 * a.cos()), -1).flatten(-2)


def multi_head(x: Tensor, weights: Weights, h: int, theta: float | None = None, p: Tensor | None = None) -> Tensor:
    *qkv, o = weights
    q, k, v = (linear(x, w).unflatten(-1, (h, -1)).transpose(-2, -3) for w in qkv)
    n = x.shape[-2]
    if theta is not None:
        p = torch.arange(n) if p is None else p
        q, k = (rope(t, p.unsqueeze(-2), theta) for t in (q, k))
    y = attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
    return linear(y.transpose(-2, -3).flatten(-2), o)
