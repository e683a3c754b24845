import torch

from cs336_basics.nn.functional import scaled_dot_product_attention


def causal_self_attention(x, h, wq, wk, wv, wo, turn=lambda x: x):
    q, k, v = ((x @ w.T).unflatten(-1, (h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
    n = x.shape[-2]
    y = scaled_dot_product_attention(turn(q), turn(k), v, torch.ones(n, n, dtype=torch.bool).tril())
    return y.transpose(-2, -3).flatten(-2) @ wo.T
