import torch
import torch.nn as nn
import wandb


def log_entropy(p, step):
    wandb.log({"entropy": -(p * p.clamp_min(1e-9).log()).sum(-1).mean().item()}, step=step)


def softmax(x, dim):
    y = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    y = (y - y.max(dim=dim, keepdim=True).values).exp()
    y = y / y.sum(dim=dim, keepdim=True)
    return y.to(x.dtype)


def attention(Q, K, V, mask=None, log_step=None):
    dtype = Q.dtype
    Q, K, V = [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in (Q, K, V)]
    scores = (Q @ K.transpose(-1, -2)) / (K.shape[-1] ** 0.5)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
        scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0)
    p = softmax(scores, -1)
    if mask is not None:
        p = p.masked_fill(~mask, 0)
    if log_step is not None:
        log_entropy(p, log_step)
    return (p @ V).to(dtype)


class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in) * (2 / (d_in + d_out)) ** 0.5)

    def forward(self, x):
        return x @ self.weight.mT


def rope(x, pos, theta):
    d = x.size(-1)
    f = torch.pow(theta, -torch.arange(0, d, 2, dtype=torch.float32) / d)
    ang = pos.unsqueeze(-1).float() * f
    c, s = torch.cos(ang), torch.sin(ang)
    out = torch.stack([x[..., ::2] * c - x[..., 1::2] * s, x[..., ::2] * s + x[..., 1::2] * c], -1)
    return out.reshape(*out.shape[:-2], d)


class SelfAttention(nn.Module):
    def __init__(self, d, h, theta=None):
        super().__init__()
        self.q, self.k, self.v, self.o = Linear(d, d), Linear(d, d), Linear(d, d), Linear(d, d)
        self.h, self.theta = h, theta

    def forward(self, x, pos=None):
        *b, t, d = x.shape
        q, k, v = (f(x).reshape(*b, t, self.h, -1).transpose(-3, -2) for f in (self.q, self.k, self.v))
        if self.theta is not None:
            pos = torch.arange(t, device=x.device) if pos is None else pos
            q, k = rope(q, pos.unsqueeze(-2), self.theta), rope(k, pos.unsqueeze(-2), self.theta)
        m = torch.tril(torch.ones(t, t, dtype=torch.bool, device=x.device))
        return self.o(attention(q, k, v, m).transpose(-3, -2).reshape(*b, t, d))
