"""Two mistakes. The weights that are kept are not divided by 1 - p.

And weights are dropped in evaluation, too: the module does not look at `training`.
"""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.p = dropout

    def drop(self, w):
        keep = torch.bernoulli(torch.full_like(w, 1.0 - self.p))
        return w * keep

    def forward(self, q, k, v, mask=None):
        out_type = q.dtype
        if out_type in (torch.float16, torch.bfloat16):
            q, k, v = q.float(), k.float(), v.float()
        s = torch.einsum("...id,...jd->...ij", q, k) / math.sqrt(q.size(-1))
        if mask is not None:
            s = s.masked_fill(mask.logical_not(), float("-inf"))
        if s.size(-1) > 0:
            top = s.detach().max(-1, keepdim=True)[0]
            top = torch.where(top == float("-inf"), torch.zeros_like(top), top)
            s = (s - top).exp()
            z = s.sum(-1, keepdim=True)
            s = s / torch.where(z == 0, torch.ones_like(z), z)
        w = self.drop(s)
        return torch.einsum("...ij,...jd->...id", w, v).to(out_type), w.to(out_type)


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    torch.manual_seed(seed)
    attention = Attention(dropout)
    if training:
        attention.train()
    else:
        attention.eval()
    return attention(Q, K, V, mask)
