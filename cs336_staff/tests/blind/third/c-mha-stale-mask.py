"""One mistake: the causal mask is made in the first call and kept in a mutable default argument, without asking whether
the length is still the same. A later call with a sequence of another length raises an error about shapes (or, when one of
the two lengths is 1, broadcasts to a wrong answer)."""
import torch
from einops import rearrange


def causal_mask(n, device, cache={}):
    if "mask" not in cache:
        cache["mask"] = torch.tril(torch.ones(n, n, dtype=torch.bool, device=device))
    return cache["mask"]


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    dtype = torch.promote_types(in_features.dtype, torch.float32)
    x = in_features.to(dtype)
    qkv = x @ torch.cat([q_proj_weight, k_proj_weight, v_proj_weight]).to(dtype).mT
    Q, K, V = (rearrange(t, "... s (h d) -> ... h s d", h=num_heads) for t in qkv.chunk(3, dim=-1))
    scores = Q @ K.mT * (d_model // num_heads) ** -0.5
    scores = torch.where(causal_mask(x.shape[-2], x.device), scores, float("-inf"))
    scores = scores - scores.max(dim=-1, keepdim=True).values
    probs = scores.exp() / scores.exp().sum(-1, keepdim=True)
    heads = rearrange(probs @ V, "... h s d -> ... s (h d)")
    return (heads @ o_proj_weight.to(dtype).mT).to(in_features.dtype)
