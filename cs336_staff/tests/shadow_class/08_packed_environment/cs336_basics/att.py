import torch as t


def up(x): return x.float() if x.dtype.itemsize == 2 else x
def lin(w, x): return (w @ x[..., None])[..., 0]


def sm(x, dim):
    y = up(x); y = (y - y.amax(dim, True)).exp()
    return (y / y.sum(dim, True)).to(x.dtype)


def att(q, k, v, m=None):
    s = up(q) @ up(k).mT * q.shape[-1]**-.5
    if m is not None:
        s = s.masked_fill(~m, -t.inf)
        s = t.where(m.any(-1, True), s, 0.)
    w = sm(s, -1)
    if m is not None: w = t.where(m, w, 0.)
    return (w @ up(v)).to(q.dtype)


def rot(x, p, theta):
    d = x.shape[-1]; a = p[..., None] * theta ** (-t.arange(0, d, 2) / d)
    R = t.stack([t.stack([a.cos(), -a.sin()], -1), t.stack([a.sin(), a.cos()], -1)], -2)
    return (R @ x.unflatten(-1, (-1, 2))[..., None]).flatten(-3)


def mha(x, h, wq, wk, wv, wo, theta=None, p=None):
    T = x.shape[-2]
    q, k, v = (lin(w, x).unflatten(-1, (h, -1)).swapaxes(-2, -3) for w in (wq, wk, wv))
    if theta:
        p = (t.arange(T) if p is None else p)[..., None, :]
        q, k = rot(q, p, theta), rot(k, p, theta)
    return lin(wo, att(q, k, v, t.ones(T, T).tril() > 0).swapaxes(-2, -3).flatten(-2))
