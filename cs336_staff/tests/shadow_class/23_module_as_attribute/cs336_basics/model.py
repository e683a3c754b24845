import math

import torch
import torch.nn as nn
from einops import einsum, rearrange


def init_weights(module):
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def softmax(x, dim=-1):
    wide = x if x.dtype == torch.float64 else x.float()
    rescaled = wide - torch.max(wide, dim=dim, keepdim=True)[0]
    exponentiated = torch.exp(rescaled)
    return (exponentiated / torch.sum(exponentiated, dim=dim, keepdim=True)).to(x.dtype)


class Linear(nn.Module):
    def __init__(self, d_in: int, d_out: int):
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(d_out, d_in), std=std, a=-3 * std, b=3 * std))

    def forward(self, x):
        return einsum(x, self.weight, "... d_in, d_out d_in -> ... d_out")

    def extra_repr(self):
        return f"d_out={self.weight.shape[0]}, d_in={self.weight.shape[1]}"


class RotaryEmbedding(nn.Module):
    def __init__(self, context_length: int, dim: int, theta: float = 10000.0):
        super().__init__()
        self.register_buffer("_freq_cis_cache", self._init_cache(context_length, dim, theta), persistent=False)

    @staticmethod
    def _init_cache(context_length, dim, theta):
        freqs = theta ** -(torch.arange(0, dim, 2) / dim)
        freqs = einsum(torch.arange(context_length).float(), freqs, "t, f -> t f")
        return torch.stack((torch.cos(freqs), torch.sin(freqs)))

    def forward(self, x, pos_ids):
        x1, x2 = rearrange(x, "... (half_d xy) -> xy ... half_d", xy=2)
        cos, sin = self._freq_cis_cache[0][pos_ids], self._freq_cis_cache[1][pos_ids]
        return rearrange([cos * x1 - sin * x2, sin * x1 + cos * x2], "xy ... half_d -> ... (half_d xy)")


def scaled_dot_product_attention(Q, K, V, mask=None):
    d_k, dtype = K.shape[-1], Q.dtype
    Q, K, V = (t if t.dtype == torch.float64 else t.float() for t in (Q, K, V))
    scores = einsum(Q, K, "... query d_k, ... key d_k -> ... query key") / math.sqrt(d_k)
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
        scores = torch.where(mask.any(dim=-1, keepdim=True), scores, 0.0)
    weights = softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
    return einsum(weights, V, "... query key, ... key d_v -> ... query d_v").to(dtype)


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, positional_encoder: RotaryEmbedding | None = None):
        super().__init__()
        assert d_model % num_heads == 0
        self.num_heads = num_heads
        self.q_proj, self.k_proj = Linear(d_model, d_model), Linear(d_model, d_model)
        self.v_proj, self.o_proj = Linear(d_model, d_model), Linear(d_model, d_model)
        self.positional_encoder = positional_encoder
        self.apply(init_weights)

    def forward(self, x, token_positions=None):
        Q, K, V = (
            rearrange(proj(x), "... seq (heads d) -> ... heads seq d", heads=self.num_heads)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.positional_encoder is not None:
            token_positions = rearrange(token_positions, "... seq -> ... 1 seq")
            Q, K = self.positional_encoder(Q, token_positions), self.positional_encoder(K, token_positions)
        seq = torch.arange(x.shape[-2], device=x.device)
        attn = scaled_dot_product_attention(Q, K, V, rearrange(seq, "q -> q 1") >= rearrange(seq, "k -> 1 k"))
        return self.o_proj(rearrange(attn, "... heads seq d -> ... seq (heads d)"))
