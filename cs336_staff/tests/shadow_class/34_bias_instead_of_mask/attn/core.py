import torch

from attn.pos import rope


def softmax(x, dim):
    if x.dtype.itemsize < 4:
        return softmax(x.float(), dim).to(x.dtype)
    top = x.amax(dim, keepdim=True)
    top = torch.where(torch.isfinite(top), top, 0.0)
    e = torch.exp(x - top)
    return e / e.sum(dim, keepdim=True).clamp_min(1.0)  # the largest adds e^0 = 1, so only an empty row has less


def bias_of(hidden):
    """-inf where hidden, else 0; to be added to the scores"""
    return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)


def sdpa(Q, K, V, bias=None):
    if Q.dtype.itemsize < 4:
        return sdpa(Q.float(), K.float(), V.float(), bias).to(Q.dtype)
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    return softmax(scores, -1) @ V


class Attn:
    def __init__(self, heads, wq, wk, wv, wo, theta=None):
        self.heads, self.w, self.wo, self.theta = heads, torch.cat((wq, wk, wv)), wo, theta

    def __call__(self, x, positions=None):
        q, k, v = (x @ self.w.T).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        n = x.shape[-2]
        if self.theta is not None:
            positions = torch.arange(n) if positions is None else positions
            q, k = rope(q, positions.unsqueeze(-2), self.theta), rope(k, positions.unsqueeze(-2), self.theta)
        return sdpa(q, k, v, bias_of(torch.ones(n, n, dtype=torch.bool).triu(1))).transpose(-2, -3).flatten(-2) @ self.wo.T
