"""Two mistakes. First: the mask is added to the scores as log(mask + 1e-4), which is about -9.2 where it is False
instead of -inf, so hidden keys keep some weight. Second: everything is cast with .float(), so that float64 inputs are
computed with the accuracy of float32."""
import torch

EPS = 1e-4


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    q, k, v = Q.float(), K.float(), V.float()
    logits = q @ k.transpose(-1, -2) / max(1, q.shape[-1]) ** 0.5
    if mask is not None:
        logits = logits + torch.log(mask.float() + EPS)  # log 1 = 0, log 0 = "minus infinity"
    if k.shape[-2] > 0:
        logits = logits - logits.amax(-1, keepdim=True).detach()
        p = logits.exp()
        p = p / p.sum(-1, keepdim=True)
    else:
        p = logits
    if mask is not None:
        # nobody to look at -> zeros
        p = torch.where(mask.any(-1, keepdim=True), p, torch.zeros(()))
    return (p @ v).to(Q.dtype)
