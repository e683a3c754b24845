import numpy as np
import torch


def _np_softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def softmax(x, dim):
    y = x.detach().to(torch.promote_types(x.dtype, torch.float32)).numpy()
    return torch.from_numpy(_np_softmax(y, dim)).to(x.dtype)


def attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    q, k, v = (x.detach().to(t).numpy() for x in (Q, K, V))
    s = q @ np.swapaxes(k, -1, -2) / np.asarray(np.sqrt(q.shape[-1]), dtype=q.dtype)
    if mask is not None:
        m = mask.numpy()
        some = m.any(axis=-1, keepdims=True)
        s = np.where(m | ~some, s, -np.inf).astype(q.dtype)
        return torch.from_numpy((_np_softmax(s, -1) * some).astype(q.dtype) @ v).to(Q.dtype)
    return torch.from_numpy(_np_softmax(s, -1) @ v).to(Q.dtype)


def rope(x, p, theta):
    d = x.shape[-1]
    a = p[..., None] * theta ** -(torch.arange(0, d, 2) / d)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)
