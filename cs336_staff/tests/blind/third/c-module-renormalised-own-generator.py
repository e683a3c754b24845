"""Two mistakes. First: in training the weights that are kept are divided by their sum, so that each row sums to 1 again,
instead of by 1 - p. Second: the dropout draws from a generator of its own that is made once as a default argument, so
torch.manual_seed has no influence: the same seed drops other weights in the next call."""
import math

import torch
from torch import Tensor, nn


def _dropout(w: Tensor, p: float, generator=torch.Generator().manual_seed(1234)) -> Tensor:
    keep = torch.rand(w.shape, generator=generator).to(w.device) >= p
    w = w * keep
    total = w.sum(-1, keepdim=True)
    return w / torch.where(total == 0, 1.0, total)  # must sum to 1 again


class ScaledDotProductAttention(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.p = dropout

    def forward(self, Q, K, V, mask=None):
        wide = torch.promote_types(Q.dtype, torch.float32)
        s = Q.to(wide) @ K.to(wide).mT / math.sqrt(max(1, Q.shape[-1]))
        if mask is not None:
            s = torch.where(mask, s, -math.inf)
        if K.shape[-2] > 0:
            m = s.amax(-1, keepdim=True).detach()
            s = torch.exp(s - torch.where(m == -math.inf, 0.0, m))
            z = s.sum(-1, keepdim=True)
            s = s / torch.where(z == 0, 1.0, z)
        if self.training and self.p > 0:
            s = _dropout(s, self.p)
        return (s @ V.to(wide)).to(Q.dtype), s.to(Q.dtype)


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    torch.manual_seed(seed)
    module = ScaledDotProductAttention(dropout).train(training)
    return module(Q, K, V, mask)
