import torch

from .functional import scaled_dot_product_attention
from .rope import rope


def multihead(x, num_heads, wq, wk, wv, wo, theta=None, positions=None):
    batch, (seq, d_model) = x.shape[:-2], x.shape[-2:]
    d_head = d_model // num_heads
    q = torch.matmul(x, wq.T).view(*batch, seq, num_heads, d_head).transpose(-3, -2)
    k = torch.matmul(x, wk.T).view(*batch, seq, num_heads, d_head).transpose(-3, -2)
    v = torch.matmul(x, wv.T).view(*batch, seq, num_heads, d_head).transpose(-3, -2)
    if theta is not None:
        if positions is None:
            positions = torch.arange(seq)
        q = rope(q, positions.unsqueeze(-2), theta, d_head)
        k = rope(k, positions.unsqueeze(-2), theta, d_head)
    mask = torch.tril(torch.ones(seq, seq))
    out = scaled_dot_product_attention(q, k, v, mask)
    return torch.matmul(out.transpose(-3, -2).contiguous().view(*batch, seq, d_model), wo.T)
