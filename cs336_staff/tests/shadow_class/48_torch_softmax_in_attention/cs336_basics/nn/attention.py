import torch


def sdpa(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    scores = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return (weights @ V.to(t)).to(Q.dtype)


def apply_rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


class CausalAttention:
    def __init__(self, h, theta=None):
        self.h, self.theta = h, theta

    def __call__(self, x, wq, wk, wv, wo, p=None):
        q, k, v = ((x @ w.T).unflatten(-1, (self.h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
        if self.theta is not None:
            q, k = apply_rope(q, p.unsqueeze(-2), self.theta), apply_rope(k, p.unsqueeze(-2), self.theta)
        n = x.shape[-2]
        return sdpa(q, k, v, torch.ones(n, n, dtype=torch.bool).tril()).transpose(-2, -3).flatten(-2) @ wo.T
