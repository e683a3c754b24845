import torch
from einops import einsum, rearrange


def softmax(x, dim):
    y = x.to(torch.float64)  # always in double, to be safe
    y = torch.exp(y - y.amax(dim, keepdim=True))
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attention(q, k, v, mask=None):
    scores = einsum(q.double(), k.double(), "... i d, ... j d -> ... i j") / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
        scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    weights = softmax(scores, -1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return einsum(weights, v.double(), "... i j, ... j d -> ... i d").to(q.dtype)


def apply(w, x):
    return einsum(w.double(), x.double(), "o i, ... i -> ... o").to(x.dtype)


def rotate(x, p, theta):
    d = x.shape[-1]
    angles = einsum(p.double(), theta ** (-torch.arange(0, d, 2).double() / d), "... t, i -> ... t i")
    a, b = rearrange(x.double(), "... (i two) -> two ... i", two=2)
    turned = torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)
    return rearrange(turned, "... i two -> ... (i two)").to(x.dtype)


def heads(x, h, wq, wk, wv, wo, turn=lambda t: t):
    q, k, v = (rearrange(apply(w, x), "... t (h d) -> ... h t d", h=h) for w in (wq, wk, wv))
    causal = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    return apply(wo, rearrange(attention(turn(q), turn(k), v, causal), "... h t d -> ... t (h d)"))


if __name__ == "__main__":
    from torch.nn.functional import softmax as theirs

    x = torch.randn(4, 4)
    print(softmax(x, 0) - theirs(x, 0))
