import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    s = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is None:
        return (softmax(s, -1) @ V.to(t)).to(Q.dtype)
    s = s.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return (softmax(s, -1).masked_fill(~mask, 0.0) @ V.to(t)).to(Q.dtype)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def rotary(x, positions, theta):
    """As in LLaMA on Hugging Face."""
    d = x.shape[-1]
    inv_freq = 1.0 / theta ** (torch.arange(0, d, 2).float() / d)
    freqs = positions[..., None].float() * inv_freq
    emb = torch.cat((freqs, freqs), dim=-1)
    return x * emb.cos() + rotate_half(x) * emb.sin()


class SelfAttention:
    def __init__(self, h, wq, wk, wv, wo):
        self.h, self.wq, self.wk, self.wv, self.wo = h, wq, wk, wv, wo

    def __call__(self, x, p=None, theta=None):
        q, k, v = ((x @ w.T).unflatten(-1, (self.h, -1)).transpose(-2, -3) for w in (self.wq, self.wk, self.wv))
        if p is not None:
            q, k = rotary(q, p.unsqueeze(-2), theta), rotary(k, p.unsqueeze(-2), theta)
        n = x.shape[-2]
        return attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril()).transpose(-2, -3).flatten(-2) @ self.wo.T
