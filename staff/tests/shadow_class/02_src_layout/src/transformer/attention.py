import torch
from einops import einsum, rearrange
from torch import nn

from .layers import Linear


def softmax(x, dim):
    z = x.double() if x.dtype == torch.float64 else x.float()
    z = (z - z.amax(dim, keepdim=True)).exp()
    return (z / z.sum(dim, keepdim=True)).type_as(x)


def scaled_dot_product_attention(Q, K, V, mask=None):
    q, k, v = (t if t.dtype == torch.float64 else t.float() for t in (Q, K, V))
    scores = einsum(q, k, "... q d, ... k d -> ... q k") * q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
        empty = ~mask.any(-1, keepdim=True)
        scores = torch.where(empty, torch.zeros_like(scores), scores)
        weights = torch.where(empty, 0.0, softmax(scores, -1))
    else:
        weights = softmax(scores, -1)
    return einsum(weights, v, "... q k, ... k d -> ... q d").type_as(Q)


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.o = (Linear(d_model, d_model) for _ in range(4))
        self.rope = rope

    def forward(self, x, token_positions=None):
        q, k, v = (
            rearrange(p(x), "... t (h d) -> ... h t d", h=self.num_heads) for p in (self.q, self.k, self.v)
        )
        if self.rope is not None:
            p = rearrange(token_positions, "... t -> ... 1 t")
            q, k = self.rope(q, p), self.rope(k, p)
        i = torch.arange(x.size(-2), device=x.device)
        out = scaled_dot_product_attention(q, k, v, i[:, None] >= i[None, :])
        return self.o(rearrange(out, "... h t d -> ... t (h d)"))
