import torch


def softmax(x, dim):
    dtype = x.dtype
    if dtype == torch.float16 or dtype == torch.bfloat16:
        x = x.to(torch.float32)
    x_max = torch.max(x, dim=dim, keepdim=True).values
    x_exp = torch.exp(x - x_max)
    return (x_exp / torch.sum(x_exp, dim=dim, keepdim=True)).to(dtype)


def scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype == torch.float16 or dtype == torch.bfloat16:
        Q, K, V = Q.to(torch.float32), K.to(torch.float32), V.to(torch.float32)
    scores = torch.matmul(Q, torch.transpose(K, -1, -2)) / torch.sqrt(torch.tensor(K.shape[-1], dtype=Q.dtype))
    if mask is None:
        return torch.matmul(softmax(scores, dim=-1), V).to(dtype)
    # scores are at most 1e4 or so, exp(-1e9 + 1e4) is a true 0
    weights = softmax(scores.masked_fill(mask == 0, -1e9), dim=-1)
    # rows where everything is -1e9 come out uniform: make them 0 by hand
    nothing_to_see = (mask == 0).all(dim=-1, keepdim=True)
    weights = weights.masked_fill(nothing_to_see, 0.0)
    return torch.matmul(weights, V).to(dtype)
