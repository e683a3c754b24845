import torch
import torch.nn as nn


def softmax(x, dim):
    d = x.dtype
    if d != torch.float64:
        x = x.float()
    x = x - x.max(dim=dim, keepdim=True)[0]
    return (torch.exp(x) / torch.exp(x).sum(dim=dim, keepdim=True)).to(d)


def attention(Q, K, V, mask=None):
    d = Q.dtype
    if d != torch.float64:
        Q, K, V = Q.float(), K.float(), V.float()
    scores = torch.matmul(Q, K.transpose(-1, -2)) / (Q.shape[-1] ** 0.5)
    if mask is not None:
        empty = (mask == False).all(dim=-1, keepdim=True)  # noqa: E712
        scores = scores.masked_fill(mask == False, float("-inf"))  # noqa: E712
        scores = scores.masked_fill(empty, 0.0)
        probs = softmax(scores, dim=-1).masked_fill(empty, 0.0)
    else:
        probs = softmax(scores, dim=-1)
    print("probs sum to", probs.sum(-1).flatten()[:3])
    return torch.matmul(probs, V).to(d)


class Linear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(o, i), std=(2 / (i + o)) ** 0.5))

    def forward(self, x):
        return x.matmul(self.weight.t())


class RoPE(nn.Module):
    def __init__(self, theta, d_k, max_seq_len):
        super().__init__()
        k = torch.arange(0, d_k // 2)
        self.table = torch.arange(max_seq_len).unsqueeze(1) / (theta ** (2 * k / d_k)).unsqueeze(0)

    def forward(self, x, pos):
        t = self.table[pos]
        y = torch.zeros_like(x)
        y[..., 0::2] = x[..., 0::2] * t.cos() - x[..., 1::2] * t.sin()
        y[..., 1::2] = x[..., 0::2] * t.sin() + x[..., 1::2] * t.cos()
        return y


class MHA(nn.Module):
    def __init__(self, d_model, h, max_seq_len=None, theta=None):
        super().__init__()
        self.h = h
        self.wq, self.wk, self.wv, self.wo = [Linear(d_model, d_model) for _ in range(4)]
        self.rope = RoPE(theta, d_model // h, max_seq_len) if theta else None

    def set_weights(self, *weights):
        for layer, w in zip([self.wq, self.wk, self.wv, self.wo], weights):
            layer.weight.data = w.clone()

    def forward(self, x, pos=None):
        shape, T = x.shape, x.shape[-2]
        heads = lambda y: y.reshape(*shape[:-1], self.h, -1).movedim(-2, -3)  # noqa: E731
        q, k, v = heads(self.wq(x)), heads(self.wk(x)), heads(self.wv(x))
        if self.rope:
            if pos is None:
                pos = torch.arange(T)
            q, k = self.rope(q, pos[..., None, :]), self.rope(k, pos[..., None, :])
        mask = torch.tril(torch.ones(T, T)).bool()
        return self.wo(attention(q, k, v, mask).movedim(-3, -2).reshape(shape))
