"""The parts of a small language model, as a student writes them."""

import math

import torch
from einops import einsum, rearrange


def softmax(x, dim):
    m = torch.max(x, dim=dim, keepdim=True).values
    z = torch.exp(x - m)
    return z / torch.sum(z, dim=dim, keepdim=True)


def rmsnorm(x, weight, eps):
    ms = (x * x).mean(dim=-1, keepdim=True)
    return x * torch.rsqrt(ms + eps) * weight


def silu(x):
    return x / (1 + torch.exp(-x))


def swiglu(x, w1, w2, w3):
    a = einsum(x, w1, "... d, f d -> ... f")
    b = einsum(x, w3, "... d, f d -> ... f")
    hidden = silu(a) * b
    return einsum(hidden, w2, "... f, d f -> ... d")


def cross_entropy(logits, targets):
    logits = logits - logits.max(dim=-1, keepdim=True).values
    log_probs = logits - torch.log(torch.exp(logits).sum(dim=-1, keepdim=True))
    nll = -log_probs[torch.arange(len(targets)), targets]
    return nll.mean()


def rope(x, theta, positions):
    d = x.shape[-1]
    exponent = torch.arange(0, d, 2) / d
    inv_freq = 1.0 / theta**exponent
    freqs = torch.outer(positions.float(), inv_freq)
    c, s = torch.cos(freqs), torch.sin(freqs)
    x1, x2 = x[..., ::2], x[..., 1::2]
    out = torch.empty_like(x)
    out[..., ::2] = x1 * c - x2 * s
    out[..., 1::2] = x1 * s + x2 * c
    return out


def attention(q, k, v, mask):
    d_k = q.shape[-1]
    att = einsum(q, k, "... q d, ... k d -> ... q k")
    att = att / math.sqrt(d_k)
    att = att.masked_fill(~mask, float("-inf"))
    p = softmax(att, dim=-1)
    return einsum(p, v, "... q k, ... k d -> ... q d")


def self_attention(x, wq, wk, wv, wo, num_heads, theta):
    q = rearrange(x @ wq.T, "... s (h d) -> ... h s d", h=num_heads)
    k = rearrange(x @ wk.T, "... s (h d) -> ... h s d", h=num_heads)
    v = rearrange(x @ wv.T, "... s (h d) -> ... h s d", h=num_heads)
    s = x.shape[-2]
    pos = torch.arange(s)
    q = rope(q, theta, pos)
    k = rope(k, theta, pos)
    causal = torch.tril(torch.ones(s, s)).bool()
    o = attention(q, k, v, causal)
    o = rearrange(o, "... h s d -> ... s (h d)")
    return o @ wo.T


def block(x, w, num_heads, theta, eps):
    h = x + self_attention(rmsnorm(x, w["ln1"], eps), w["wq"], w["wk"], w["wv"], w["wo"], num_heads, theta)
    f = swiglu(rmsnorm(h, w["ln2"], eps), w["w1"], w["w2"], w["w3"])
    return h + f


class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                t = state.get("t", 0) + 1
                m = b1 * state.get("m", 0) + (1 - b1) * p.grad
                v = b2 * state.get("v", 0) + (1 - b2) * p.grad**2
                state["t"], state["m"], state["v"] = t, m, v
                lr_t = group["lr"] * (1 - b2**t) ** 0.5 / (1 - b1**t)
                p -= lr_t * m / (torch.sqrt(v) + group["eps"])
                p -= group["lr"] * group["weight_decay"] * p


def lr_schedule(t, lr_max, lr_min, warmup, total):
    if t < warmup:
        return lr_max * t / warmup
    if t <= total:
        frac = (t - warmup) / (total - warmup)
        return lr_min + (lr_max - lr_min) * (1 + math.cos(math.pi * frac)) / 2
    return lr_min
