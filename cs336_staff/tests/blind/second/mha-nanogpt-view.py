"""Causal self-attention in the manner of nanoGPT.

Wrong: the .contiguous() between transpose and view is missing when the heads are joined, so view raises a RuntimeError as soon
as there is more than one head and more than one position. (With one head or one position it works and is right.)
"""

import math

import torch
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        assert n_embd % n_head == 0
        self.n_head = n_head
        self.n_embd = n_embd
        self.c_attn = nn.Parameter(torch.empty(3 * n_embd, n_embd))
        self.c_proj = nn.Parameter(torch.empty(n_embd, n_embd))

    def forward(self, x):
        *B, T, C = x.size()
        hs = C // self.n_head
        q, k, v = (x @ self.c_attn.mT).split(self.n_embd, dim=-1)
        k = k.view(*B, T, self.n_head, hs).transpose(-3, -2)  # (B, nh, T, hs)
        q = q.view(*B, T, self.n_head, hs).transpose(-3, -2)
        v = v.view(*B, T, self.n_head, hs).transpose(-3, -2)

        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(hs))
        bias = torch.tril(torch.ones(T, T, device=x.device))
        att = att.masked_fill(bias == 0, float("-inf"))
        att = torch.exp(att - att.amax(dim=-1, keepdim=True))
        att = att / att.sum(dim=-1, keepdim=True)
        y = att @ v
        y = y.transpose(-3, -2).view(*B, T, C)  # re-assemble all head outputs side by side
        return y @ self.c_proj.mT


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    attn = CausalSelfAttention(d_model, num_heads)
    attn.c_attn = nn.Parameter(torch.cat([q_proj_weight, k_proj_weight, v_proj_weight], dim=0))
    attn.c_proj = nn.Parameter(o_proj_weight)
    return attn(in_features)
