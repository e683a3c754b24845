"""A small language model's parts, the instructor's own solution."""

import math

import torch


def softmax(x, dim):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def rmsnorm(x, weight, eps):
    mean_square = x.pow(2).mean(-1, keepdim=True)
    rms = torch.sqrt(mean_square + eps)
    return x / rms * weight


def silu(x):
    return x * torch.sigmoid(x)


def swiglu(x, w1, w2, w3):
    gate = silu(x @ w1.T)
    up = x @ w3.T
    return (gate * up) @ w2.T


def cross_entropy(logits, targets):
    shifted = logits - logits.amax(-1, keepdim=True)
    log_sum = shifted.exp().sum(-1).log()
    picked = shifted.gather(-1, targets[:, None])[:, 0]
    return (log_sum - picked).mean()


def rope(x, theta, positions):
    d = x.shape[-1]
    frequencies = theta ** (-torch.arange(0, d, 2) / d)
    angles = positions[..., None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def attention(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    weights = softmax(scores, -1)
    return weights @ v


def self_attention(x, wq, wk, wv, wo, num_heads, theta):
    def split(y):
        return y.unflatten(-1, (num_heads, -1)).transpose(-3, -2)

    q, k, v = split(x @ wq.T), split(x @ wk.T), split(x @ wv.T)
    length = x.shape[-2]
    positions = torch.arange(length)
    q, k = rope(q, theta, positions), rope(k, theta, positions)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    heads = attention(q, k, v, mask).transpose(-3, -2).flatten(-2)
    return heads @ wo.T


def block(x, w, num_heads, theta, eps):
    normed = rmsnorm(x, w["ln1"], eps)
    x = x + self_attention(normed, w["wq"], w["wk"], w["wv"], w["wo"], num_heads, theta)
    normed = rmsnorm(x, w["ln2"], eps)
    return x + swiglu(normed, w["w1"], w["w2"], w["w3"])


class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
                state["step"] += 1
                mean = state["mean"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                square = state["square"].mul_(beta2).add_(p.grad**2, alpha=1 - beta2)
                corrected = math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                p.sub_(group["lr"] * corrected * mean / (square.sqrt() + group["eps"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])


def lr_schedule(t, lr_max, lr_min, warmup, total):
    if t < warmup:
        return t / warmup * lr_max
    if t > total:
        return lr_min
    progress = (t - warmup) / (total - warmup)
    cosine = math.cos(progress * math.pi)
    return lr_min + 0.5 * (1 + cosine) * (lr_max - lr_min)
