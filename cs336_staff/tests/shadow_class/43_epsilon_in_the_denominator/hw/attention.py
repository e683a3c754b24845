import torch


def softmax(x, dim, eps=1e-8):
    """eps so that nothing is ever divided by zero."""
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    top = y.amax(dim, keepdim=True)
    e = torch.exp(y - top.masked_fill(top.isinf(), 0.0))
    return (e / (e.sum(dim, keepdim=True) + eps)).to(x.dtype)


def scaled_dot_product_attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    s = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    return (softmax(s, -1) @ V.to(t)).to(Q.dtype)


def rotate(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


class Attention:
    def __init__(self, h, theta=None):
        self.h, self.theta = h, theta

    def __call__(self, x, wq, wk, wv, wo, p=None):
        q, k, v = ((x @ w.T).unflatten(-1, (self.h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
        if self.theta is not None:
            q, k = rotate(q, p.unsqueeze(-2), self.theta), rotate(k, p.unsqueeze(-2), self.theta)
        n = x.shape[-2]
        y = scaled_dot_product_attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
        return y.transpose(-2, -3).flatten(-2) @ wo.T
