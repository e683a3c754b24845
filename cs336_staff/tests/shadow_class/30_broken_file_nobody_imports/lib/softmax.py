import torch


def softmax(x, dim):
    if x.dtype in (torch.float16, torch.bfloat16):
        return softmax(x.float(), dim).to(x.dtype)
    z = x - x.max(dim, keepdim=True)[0]
    return z.exp() / z.exp().sum(dim, keepdim=True)
