import math

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, s, n, BLOCK: tl.constexpr):
    """First step towards flash attention; only ever started on a GPU."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * s, mask=i < n)


def scaled(x, s):
    if not x.is_cuda:
        return x * s
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, s, x.numel(), BLOCK=1024)
    return y


def softmax(x, dim):
    kind = x.dtype
    x = x.to(torch.float64 if kind == torch.float64 else torch.float32)
    x = x - x.max(dim, True)[0]
    return (x.exp() / x.exp().sum(dim, True)).to(kind)


def eager(Q, K, V, mask=None):
    kind = torch.float64 if Q.dtype == torch.float64 else torch.float32
    scores = scaled(Q.to(kind), 1 / math.sqrt(Q.shape[-1])) @ K.to(kind).transpose(-1, -2)
    if mask is None:
        return (softmax(scores, -1) @ V.to(kind)).to(Q.dtype)
    awake = mask.any(-1, keepdim=True)
    weights = softmax(torch.where(mask | ~awake, scores, float("-inf")), -1)
    return torch.where(awake, weights @ V.to(kind), 0.0).to(Q.dtype)


def causal(n):
    return torch.arange(n) <= torch.arange(n)[:, None]


def split(x, h):
    return x.reshape(*x.shape[:-1], h, x.shape[-1] // h).transpose(-2, -3)


def merge(x):
    return x.transpose(-2, -3).flatten(-2)


def rope(x, p, theta):
    half = x.shape[-1] // 2
    a = p[..., None] * theta ** (-torch.arange(half) / half)
    pair = x.reshape(*x.shape[:-1], half, 2)
    turned = (pair[..., 0] * a.cos() - pair[..., 1] * a.sin(), pair[..., 0] * a.sin() + pair[..., 1] * a.cos())
    return torch.stack(turned, -1).reshape(x.shape)
