"""Two mistakes. First: the scores are detached (scores.clone().detach()) before they are masked in place, so no gradient
reaches Q and K. Second: with mask=None a causal mask is used instead of none, so queries do not see later keys."""
import torch
from einops import einsum


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    half = Q.dtype in (torch.float16, torch.bfloat16)
    q, k, v = (Q.float(), K.float(), V.float()) if half else (Q, K, V)

    qk = einsum(q, k, "... n d, ... m d -> ... n m") / max(1, q.shape[-1]) ** 0.5
    n, m = qk.shape[-2:]
    if mask is None:
        mask = torch.ones(n, m, dtype=torch.bool, device=Q.device).tril()
    shape = torch.broadcast_shapes(qk.shape, mask.shape)

    # a copy, since masked_fill_ works in place
    scores = qk.expand(shape).clone().detach()
    scores.masked_fill_(~mask, float("-inf"))
    if m > 0:
        hi = scores.amax(-1, keepdim=True)
        hi[hi == float("-inf")] = 0
        scores = (scores - hi).exp()
        total = scores.sum(-1, keepdim=True)
        total[total == 0] = 1
        scores = scores / total
    out = einsum(scores, v, "... n m, ... m d -> ... n d")
    return out.to(Q.dtype)
