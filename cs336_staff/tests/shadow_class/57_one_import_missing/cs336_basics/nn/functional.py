import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)


def scaled_dot_product_attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    s = Q.to(t) @ K.to(t).mT / Q.shape[-1] ** 0.5
    if mask is None:
        return (softmax(s, -1) @ V.to(t)).to(Q.dtype)
    s = s.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return (softmax(s, -1).masked_fill(~mask, 0.0) @ V.to(t)).to(Q.dtype)
