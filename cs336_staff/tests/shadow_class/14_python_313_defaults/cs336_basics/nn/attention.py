from typing import TypeVar, override

import torch
from torch import Tensor

from .linear import Linear
from .rope import RotaryPositionalEmbedding

type Layer[T = Tensor] = Linear[T]
D = TypeVar("D", default=int)


def softmax(x: Tensor, dim: int) -> Tensor:
    if x.dtype in {torch.float16, torch.bfloat16}:
        return softmax(x.float(), dim).to(x.dtype)
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    if Q.dtype in {torch.float16, torch.bfloat16}:
        return scaled_dot_product_attention(Q.float(), K.float(), V.float(), mask).to(Q.dtype)
    scores = torch.einsum("...qd,...kd->...qk", Q, K) / Q.shape[-1] ** 0.5
    if mask is None:
        return softmax(scores, -1) @ V
    hidden, blind = ~mask, ~mask.any(-1, keepdim=True)
    scores = scores.masked_fill(hidden & ~blind, -torch.inf)
    return (softmax(scores, -1) @ V).masked_fill(blind, 0.0)


class Base:
    def split(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Heads(Base):
    def __init__(self, n: int, q: Layer, k: Layer, v: Layer, o: Layer, rope: RotaryPositionalEmbedding | None = None):
        self.n, self.q, self.k, self.v, self.o, self.rope = n, q, k, v, o, rope

    @override
    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n, -1)).transpose(-3, -2)

    def __call__(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        Q, K, V = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        T = x.shape[-2]
        if self.rope:
            positions = (torch.arange(T) if positions is None else positions)[..., None, :]
            Q, K = self.rope(Q, positions), self.rope(K, positions)
        see = torch.ones(T, T, dtype=torch.bool).tril()
        return self.o(scaled_dot_product_attention(Q, K, V, see).transpose(-3, -2).flatten(-2))
