import torch


def softmax(x, dim):
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    y = (y - y.amax(dim, keepdim=True)).exp()
    return (y / y.sum(dim, keepdim=True)).to(x.dtype)
