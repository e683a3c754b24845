"""One mistake: every negative `dim` is taken for the last dimension, so dim=-2 or dim=-3 normalises along the last one
instead of the one that was asked for."""
import torch


def run_softmax(in_features: torch.Tensor, dim: int) -> torch.Tensor:
    if in_features.numel() == 0:
        return in_features.clone()
    if dim < 0:
        dim = max(in_features.dim() - 1, 0)  # negative = count from the end

    half = in_features.dtype in (torch.float16, torch.bfloat16)
    z = in_features.float() if half else in_features
    c = torch.max(z, dim=dim, keepdim=True)[0].detach()
    c = torch.where(c == -float("inf"), torch.zeros_like(c), c)
    numerator = torch.exp(z - c)
    denominator = numerator.sum(dim=dim, keepdim=True)
    denominator = torch.where(denominator > 0, denominator, torch.where(denominator == 0, 1.0, denominator))
    result = numerator / denominator
    return result.type(in_features.dtype)
