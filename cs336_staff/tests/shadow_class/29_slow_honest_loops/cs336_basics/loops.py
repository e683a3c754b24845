# I do not trust broadcasting, so everything is a loop over matrices and rows.
import math

import torch


def softmax(x, dim):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rows = wide.movedim(dim, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    out = []
    for row in flat:
        e = torch.exp(row - row.max())
        out.append(e / e.sum())
    return torch.stack(out).reshape(rows.shape).movedim(-1, dim).to(x.dtype)


def attention_of_matrices(Q, K, V, mask):
    out = []
    for i in range(Q.shape[0]):
        if mask is not None and not mask[i].any():
            out.append(0 * (V.sum(0) + K.sum() + Q[i].sum()))  # zeros, but backward() still works
            continue
        keys, values = (K, V) if mask is None else (K[mask[i]], V[mask[i]])
        scores = (keys * Q[i]).sum(1) / math.sqrt(Q.shape[1])
        out.append((softmax(scores, 0).unsqueeze(1) * values).sum(0))
    return torch.stack(out)


def attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    lead = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2], () if mask is None else mask.shape[:-2])
    q, k, v = (x.to(t).expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (Q, K, V))
    if mask is not None:
        mask = mask.expand(*lead, Q.shape[-2], K.shape[-2]).reshape(-1, Q.shape[-2], K.shape[-2])
    out = [attention_of_matrices(q[b], k[b], v[b], None if mask is None else mask[b]) for b in range(q.shape[0])]
    return torch.stack(out).reshape(*lead, Q.shape[-2], V.shape[-1]).to(Q.dtype)


def linear(x, w):
    return torch.stack([(x * row).sum(-1) for row in w], dim=-1)


def rope(x, positions, theta):
    d = x.shape[-1]
    columns = []
    for i in range(d // 2):
        angle = positions * theta ** (-2 * i / d)
        cos, sin = torch.cos(angle), torch.sin(angle)
        columns.append(x[..., 2 * i] * cos - x[..., 2 * i + 1] * sin)
        columns.append(x[..., 2 * i] * sin + x[..., 2 * i + 1] * cos)
    return torch.stack(columns, -1)


def multihead(x, h, wq, wk, wv, wo, theta=None, positions=None):
    n, d = x.shape[-2], x.shape[-1] // h
    mask = torch.tensor([[j <= i for j in range(n)] for i in range(n)])
    if positions is None:
        positions = torch.arange(n)
    heads = []
    for i in range(h):
        q, k, v = (linear(x, w[i * d : (i + 1) * d]) for w in (wq, wk, wv))
        if theta is not None:
            q, k = rope(q, positions, theta), rope(k, positions, theta)
        heads.append(attention(q, k, v, mask))
    return linear(torch.cat(heads, -1), wo)
