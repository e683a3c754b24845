from dataclasses import dataclass

import torch
from beartype import beartype
from einops import einsum
from jaxtyping import Float, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    z = x.to(torch.promote_types(x.dtype, torch.float32))
    z = z - z.amax(dim=dim, keepdim=True)
    return (z.exp() / z.exp().sum(dim=dim, keepdim=True)).to(x.dtype)


@jaxtyped(typechecker=beartype)
@dataclass
class Linear:
    weight: Float[Tensor, "d_out d_in"]

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return einsum(x, self.weight, "... d_in, d_out d_in -> ... d_out")
