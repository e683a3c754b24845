import torch
from einops import einsum, rearrange
from torch import nn

from cs336_basics.nn.functional import scaled_dot_product_attention


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__()
        self.heads, self.rope = num_heads, rope
        self.wq, self.wk, self.wv, self.wo = (nn.Parameter(torch.zeros(d_model, d_model)) for _ in range(4))

    def forward(self, x, token_positions=None):
        w = rearrange([self.wq, self.wk, self.wv], "n (h d) m -> n h d m", h=self.heads)
        q, k, v = einsum(w, x, "n h d m, ... t m -> n ... h t d")
        if self.rope:
            if token_positions is None:
                token_positions = torch.arange(x.shape[-2])
            p = token_positions.unsqueeze(-2)
            q, k = self.rope(q, p), self.rope(k, p)
        t = torch.arange(x.shape[-2])
        y = scaled_dot_product_attention(q, k, v, t <= t[:, None])
        wo = rearrange(self.wo, "m (h d) -> m h d", h=self.heads)
        return einsum(wo, y, "m h d, ... h t d -> ... t m")
