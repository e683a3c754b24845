import torch
from torch.nn import Module


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attention_weights(Q, K, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    scores = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is None:
        return softmax(scores, -1)
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return softmax(scores, -1).masked_fill(~mask, 0.0)


def scaled_dot_product_attention(Q, K, V, mask=None):
    w = attention_weights(Q, K, mask)
    return (w @ V.to(w.dtype)).to(Q.dtype)


class ScaledDotProductAttention(Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = dropout

    def forward(self, Q, K, V, mask=None, return_weights=False):
        w = attention_weights(Q, K, mask)
        out = (w @ V.to(w.dtype)).to(Q.dtype)
        if self.training and self.dropout > 0:
            out = out * (torch.rand_like(out) >= self.dropout) / (1 - self.dropout)
        return (out, w.to(Q.dtype)) if return_weights else out


def apply_rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


def multihead(x, h, wq, wk, wv, wo, theta=None, p=None):
    q, k, v = ((x @ w.T).unflatten(-1, (h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
    if theta is not None:
        q, k = apply_rope(q, p.unsqueeze(-2), theta), apply_rope(k, p.unsqueeze(-2), theta)
    n = x.shape[-2]
    y = scaled_dot_product_attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
    return y.transpose(-2, -3).flatten(-2) @ wo.T
