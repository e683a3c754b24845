"""Two mistakes. First: the sum in the denominator is computed under torch.no_grad, so it counts as a constant and the
gradient lacks the part that flows through the normaliser. Second: float16 and bfloat16 are widened to float32, but the
answer is never brought back to the dtype of the input."""
import torch
from torch import Tensor


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    if in_features.numel() == 0:
        return in_features.clone()
    logits = in_features
    if logits.dtype == torch.float16 or logits.dtype == torch.bfloat16:
        logits = logits.to(torch.float32)

    # max and normaliser are just "statistics" of the slice, autograd need not track them
    with torch.no_grad():
        m = logits.amax(dim=dim, keepdim=True)
        m = m.masked_fill(m == float("-inf"), 0.0)
        Z = (logits - m).exp().sum(dim=dim, keepdim=True)
        Z = Z.masked_fill(Z == 0, 1.0)

    return (logits - m).exp() / Z
