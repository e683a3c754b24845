import torch
from torch import nn

from cs336_basics.nn.functional import attention_scores, scaled_dot_product_attention, softmax
from cs336_basics.nn.linear import Linear


class ScaledDotProductAttention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.p = dropout

    def forward(self, Q, K, V, mask=None, *, return_weights=False, return_scores=False):
        scores = attention_scores(Q, K, mask)
        weights = softmax(scores, -1)
        if self.training and self.p > 0:
            weights = weights * torch.bernoulli(torch.full_like(weights, 1 - self.p)) / (1 - self.p)
        result = [(weights @ V.to(weights.dtype)).to(Q.dtype)]
        if return_weights:
            result.append(weights.to(Q.dtype))
        if return_scores:
            result.append(scores)
        return tuple(result) if len(result) > 1 else result[0]


class _Heads(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj = Linear(d_model, d_model), Linear(d_model, d_model)
        self.v_proj, self.o_proj = Linear(d_model, d_model), Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)

    def join(self, x):
        return self.o_proj(x.transpose(-2, -3).flatten(-2))


class CausalMultiHeadSelfAttention(_Heads):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__(d_model, num_heads)
        self.rope = rope

    def forward(self, x, token_positions=None):
        Q, K, V = (self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        n = x.shape[-2]
        if self.rope is not None:
            token_positions = torch.arange(n) if token_positions is None else token_positions
            Q, K = (self.rope(t, token_positions.unsqueeze(-2)) for t in (Q, K))
        return self.join(scaled_dot_product_attention(Q, K, V, torch.ones(n, n, dtype=torch.bool).tril()))


class MultiHeadAttention(_Heads):
    def __init__(self, d_model, num_heads, dropout=0.0, bias=False):
        super().__init__(d_model, num_heads)
        assert not bias, "bias is not done yet"
        self.attention = ScaledDotProductAttention(dropout)

    def forward(self, query, key, value, mask=None, *, return_weights=False):
        if mask is not None and mask.ndim == query.ndim - 1:
            mask = mask[..., None, None, :]
        elif mask is not None and mask.ndim == query.ndim:
            mask = mask[..., None, :, :]
        Q, K, V = self.split(self.q_proj(query)), self.split(self.k_proj(key)), self.split(self.v_proj(value))
        out, weights = self.attention(Q, K, V, mask, return_weights=True)
        return (self.join(out), weights) if return_weights else self.join(out)
