import torch
from torch import nn


def softmax(x, dim=-1):
    y = x.float() if x.dtype in (torch.half, torch.bfloat16) else x
    y = torch.exp(y - torch.max(y, dim=dim, keepdim=True)[0])
    return torch.div(y, torch.sum(y, dim=dim, keepdim=True)).to(x.dtype)


def scaled_dot_product_attention(Q, K, V, mask=None):
    in_dtype = Q.dtype
    if in_dtype in (torch.half, torch.bfloat16):
        Q, K, V = Q.float(), K.float(), V.float()
    scores = torch.matmul(Q, K.mT) / Q.shape[-1] ** 0.5
    if mask is not None:
        # finite instead of -inf, so that an all-False row gives uniform weights and no nan; multiplied away below
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = softmax(scores)
    if mask is not None:
        weights = weights * mask.any(-1, keepdim=True)
    return torch.matmul(weights, V).to(in_dtype)


class Linear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.trunc_normal_(self.weight, std=(2 / (in_features + out_features)) ** 0.5)

    def forward(self, x):
        return x @ self.weight.T


class RoPE(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        freq = theta ** (-torch.arange(0, d_k, 2).float() / d_k)
        angle = torch.arange(max_seq_len).float()[:, None] * freq[None, :]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x, positions):
        c, s = self.cos[positions], self.sin[positions]
        x1, x2 = x[..., ::2], x[..., 1::2]
        out = torch.empty(torch.broadcast_shapes(x1.shape, c.shape)[:-1] + (x.shape[-1],), dtype=x.dtype)
        out[..., ::2] = x1 * c - x2 * s
        out[..., 1::2] = x1 * s + x2 * c
        return out


class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v, self.o = [Linear(d_model, d_model) for _ in range(4)]
        self.rope = rope

    def forward(self, x, positions=None):
        *lead, t, d = x.shape
        q, k, v = [p(x).view(*lead, t, self.h, d // self.h).transpose(-2, -3) for p in (self.q, self.k, self.v)]
        if self.rope is not None:
            positions = torch.arange(t) if positions is None else positions
            q, k = self.rope(q, positions.unsqueeze(-2)), self.rope(k, positions.unsqueeze(-2))
        mask = ~torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
        y = scaled_dot_product_attention(q, k, v, mask)
        return self.o(y.transpose(-2, -3).reshape(*lead, t, d))
