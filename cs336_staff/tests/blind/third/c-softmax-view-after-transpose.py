"""One mistake: the dimension is moved to the end and the result flattened with `view`, which cannot flatten a tensor
that is not contiguous. So it raises a RuntimeError whenever `dim` is not the last one of a tensor with several."""
import torch


def softmax2d(rows):
    top = rows.amax(1, keepdim=True).detach()
    top = torch.where(top == -torch.inf, 0.0, top)
    e = torch.exp(rows - top)
    total = e.sum(1, keepdim=True)
    return e / torch.where(total == 0, 1.0, total)


def run_softmax(in_features, dim):
    if in_features.numel() == 0:
        return in_features.clone()
    if in_features.ndim == 0:
        return softmax2d(in_features.view(1, 1)).view(())
    x = in_features
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    # bring the axis to the end, then it is only a matrix
    moved = x.movedim(dim, -1)
    n = moved.shape[-1]
    rows = moved.view(moved.numel() // n, n)
    y = softmax2d(rows).view(moved.shape)
    return y.movedim(-1, dim).to(in_features.dtype)
