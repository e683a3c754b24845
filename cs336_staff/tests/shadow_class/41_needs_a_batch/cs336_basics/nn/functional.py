import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def scaled_dot_product_attention(Q, K, V, mask=None):
    if Q.ndim < 3:
        raise ValueError(f"expected (batch, ..., queries, d_k), got {tuple(Q.shape)}")
    t = torch.promote_types(Q.dtype, torch.float32)
    s = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    w = softmax(s, -1)
    if mask is not None:
        w = w.masked_fill(~mask, 0.0)
    return (w @ V.to(t)).to(Q.dtype)
