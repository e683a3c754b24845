import torch
from torch import nn

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_basics.nn.linear import Linear


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads, rope=None):
        super().__init__()
        d_head = d_model // num_heads
        self.d_head = d_head
        self.Q = nn.ModuleList([Linear(d_model, d_head) for _ in range(num_heads)])
        self.K = nn.ModuleList([Linear(d_model, d_head) for _ in range(num_heads)])
        self.V = nn.ModuleList([Linear(d_model, d_head) for _ in range(num_heads)])
        self.O = Linear(d_model, d_model)
        self.rope = rope

    def fill(self, q, k, v, o):
        for i in range(len(self.Q)):
            rows = slice(i * self.d_head, (i + 1) * self.d_head)
            self.Q[i].weight.data = q[rows]
            self.K[i].weight.data = k[rows]
            self.V[i].weight.data = v[rows]
        self.O.weight.data = o

    def forward(self, x, token_positions=None):
        n = x.shape[-2]
        mask = torch.zeros(n, n, dtype=torch.bool)
        for t in range(n):
            mask[t, : t + 1] = True
        heads = []
        for i in range(len(self.Q)):
            q, k, v = self.Q[i](x), self.K[i](x), self.V[i](x)
            if self.rope is not None:
                q, k = self.rope(q, token_positions), self.rope(k, token_positions)
            heads.append(scaled_dot_product_attention(q, k, v, mask))
        return self.O(torch.cat(heads, dim=-1))
