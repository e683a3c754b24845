import torch


def softmax(x, dim):
    dtype = x.dtype
    if dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    biggest, _ = x.max(dim=dim, keepdim=True)
    e = torch.exp(x - biggest)
    return (e / e.sum(dim=dim, keepdim=True)).to(dtype)
