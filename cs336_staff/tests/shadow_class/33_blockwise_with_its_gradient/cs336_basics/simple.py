import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


def heads(attend, x, h, wq, wk, wv, wo, turn=lambda t: t):
    q, k, v = ((x @ w.T).unflatten(-1, (h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    return attend(turn(q), turn(k), v, mask).transpose(-2, -3).flatten(-2) @ wo.T
