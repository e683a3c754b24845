import torch

from .attention import attention


class MultiHead:
    def __init__(self, num_heads, rope=None):
        self.num_heads, self.rope = num_heads, rope

    def __call__(self, x, wq, wk, wv, wo, positions=None):
        T = x.shape[-2]
        q, k, v = (x.unsqueeze(-3) @ w.unflatten(0, (self.num_heads, -1)).mT for w in (wq, wk, wv))
        if self.rope:
            positions = torch.arange(T) if positions is None else positions
            q, k = self.rope(q, positions.unsqueeze(-2)), self.rope(k, positions.unsqueeze(-2))
        y = attention(q, k, v, torch.ones(T, T, dtype=torch.bool).tril())
        # the sum over heads of head @ its columns of W_O
        return (y @ wo.mT.unflatten(0, (self.num_heads, -1))).sum(-3)
