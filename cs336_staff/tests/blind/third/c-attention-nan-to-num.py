"""One mistake: a row in which everything is masked becomes NaN in the softmax and is only turned into zeros afterwards
with nan_to_num. The answer is right, but in the backward pass the NaN comes out as gradients of Q and K."""
import torch
from einops import einsum


def softmax(x, dim):
    x = x - x.amax(dim, keepdim=True)
    e = x.exp()
    return e / e.sum(dim, keepdim=True)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = Q.dtype
    if dtype in [torch.float16, torch.bfloat16]:
        Q, K, V = Q.float(), K.float(), V.float()
    scores = einsum(Q, K, "... queries d_k, ... keys d_k -> ... queries keys") / max(1, K.shape[-1]) ** 0.5
    if mask is not None:
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, float("-inf"))
    if K.shape[-2] > 0:
        # rows without a single True are 0/0, make them zeros
        scores = torch.nan_to_num(softmax(scores, -1), nan=0.0)
    return einsum(scores, V, "... queries keys, ... keys d_v -> ... queries d_v").to(dtype)
