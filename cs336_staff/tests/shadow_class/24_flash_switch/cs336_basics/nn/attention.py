import torch
import torch.nn.functional as F
from torch import nn


def softmax(x, dim):
    y = x.float() if x.element_size() == 2 else x
    y = torch.exp(y - y.amax(dim=dim, keepdim=True))
    return (y / y.sum(dim=dim, keepdim=True)).to(x.dtype)


def scaled_dot_product_attention(Q, K, V, mask=None, flash_attn=False):
    if flash_attn:  # for my own experiments on the GPU, never on by default
        return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
    dtype = Q.dtype
    if Q.element_size() == 2:
        Q, K, V = Q.float(), K.float(), V.float()
    att = (Q @ K.transpose(-2, -1)) * (Q.size(-1) ** -0.5)
    if mask is not None:
        att = att.masked_fill(~mask, float("-inf"))
        att = att.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    att = softmax(att, dim=-1)
    if mask is not None:
        att = att.masked_fill(~mask, 0.0)
    return (att @ V).to(dtype)


class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        nn.init.trunc_normal_(self.weight, std=(2 / (d_in + d_out)) ** 0.5)

    def forward(self, x):
        return x @ self.weight.T


def apply_rope(x, positions, theta):
    freqs = 1.0 / (theta ** (torch.arange(0, x.size(-1), 2)[: x.size(-1) // 2].float() / x.size(-1)))
    freqs = positions[..., None].float() * freqs
    freqs_cis = torch.polar(torch.ones_like(freqs), freqs)
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_ * freqs_cis).flatten(-2).type_as(x)


class Attention(nn.Module):
    def __init__(self, d_model, n_heads, theta=None, flash_attn=False):
        super().__init__()
        self.n_heads, self.theta, self.flash_attn = n_heads, theta, flash_attn
        self.wq, self.wk, self.wv, self.wo = [Linear(d_model, d_model) for _ in range(4)]

    def forward(self, x, positions=None):
        T = x.size(-2)
        q, k, v = [w(x).unflatten(-1, (self.n_heads, -1)).transpose(-3, -2) for w in (self.wq, self.wk, self.wv)]
        if self.theta is not None:
            if positions is None:
                positions = torch.arange(T)
            q, k = [apply_rope(t, positions.unsqueeze(-2), self.theta) for t in (q, k)]
        mask = torch.tril(torch.ones(T, T, dtype=torch.bool, device=x.device))
        y = scaled_dot_product_attention(q, k, v, mask, flash_attn=self.flash_attn)
        return self.wo(y.transpose(-3, -2).flatten(-2))
