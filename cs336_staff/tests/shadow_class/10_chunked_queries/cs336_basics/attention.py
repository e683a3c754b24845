import torch
from einops import einsum, rearrange, reduce

CHUNK = 4


def wide(*tensors):
    return [t if t.dtype == torch.float64 else t.float() for t in tensors]


def softmax(x, dim):
    (y,) = wide(x)
    y = torch.exp(y - y.amax(dim, keepdim=True))
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def attention(Q, K, V, mask=None):
    """Never more than CHUNK queries at once."""
    q, k, v = wide(Q, K, V)
    queries, keys = Q.shape[-2], K.shape[-2]
    if mask is None:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=Q.device)
    mask = mask.expand(*mask.shape[:-2], queries, keys)
    parts = []
    for i in range(0, queries, CHUNK):
        part, seen = q[..., i : i + CHUNK, :], mask[..., i : i + CHUNK, :]
        s = einsum(part, k, "... i d, ... j d -> ... i j") / Q.shape[-1] ** 0.5
        s = s.masked_fill(~seen, -torch.inf)
        top = reduce(s, "... i j -> ... i 1", "max")
        top = top.masked_fill(top == -torch.inf, 0.0)
        e = torch.exp(s - top)
        total = reduce(e, "... i j -> ... i 1", "sum")
        o = einsum(e, v, "... i j, ... j d -> ... i d")
        parts.append(torch.where(total > 0, o / total.clamp(min=torch.finfo(o.dtype).tiny), 0.0))
    return torch.cat(parts, -2).to(Q.dtype)


def blockwise(Q, K, V, mask, size):
    q, k, v = wide(Q, K, V)
    out = []
    for i in range(0, Q.shape[-2], size):
        qi = q[..., i : i + size, :] / Q.shape[-1] ** 0.5
        m = l = o = None
        for j in range(0, K.shape[-2], size):
            s = einsum(qi, k[..., j : j + size, :], "... i d, ... j d -> ... i j")
            if mask is not None:
                cut = mask
                if mask.ndim > 1 and mask.shape[-2] > 1:
                    cut = cut[..., i : i + size, :]
                if mask.shape[-1] > 1:
                    cut = cut[..., j : j + size]
                s = s.masked_fill(~cut, -torch.inf)
            new = s.amax(-1, keepdim=True).clamp(min=-1e30)
            if m is not None:
                new = torch.maximum(new, m)
            p = torch.exp(s - new)
            pv = einsum(p, v[..., j : j + size, :], "... i j, ... j d -> ... i d")
            if m is None:
                l, o = p.sum(-1, keepdim=True), pv
            else:
                f = torch.exp(m - new)
                l, o = f * l + p.sum(-1, keepdim=True), f * o + pv
            m = new
        out.append(o / torch.where(l == 0, 1.0, l))
    return torch.cat(out, dim=-2).to(Q.dtype)


def linear(x, w):
    return einsum(x, w, "... i, o i -> ... o")


def rope(x, positions, theta):
    pairs = rearrange(x, "... (i two) -> two ... i", two=2)
    i = torch.arange(x.shape[-1] // 2)
    angle = einsum(positions.float(), theta ** (-2 * i / x.shape[-1]), "... t, i -> ... t i")
    x0 = pairs[0] * angle.cos() - pairs[1] * angle.sin()
    x1 = pairs[0] * angle.sin() + pairs[1] * angle.cos()
    return rearrange([x0, x1], "two ... i -> ... (i two)")


def multihead(x, h, wq, wk, wv, wo, theta=None, positions=None):
    q, k, v = (rearrange(linear(x, w), "... t (h d) -> ... h t d", h=h) for w in (wq, wk, wv))
    n = x.shape[-2]
    if theta is not None:
        positions = torch.arange(n) if positions is None else positions
        positions = rearrange(positions, "... t -> ... 1 t")
        q, k = rope(q, positions, theta), rope(k, positions, theta)
    y = attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
    return linear(rearrange(y, "... h t d -> ... t (h d)"), wo)
