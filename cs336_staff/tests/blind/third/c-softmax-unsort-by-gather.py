"""One mistake: the slice is sorted first (so that the largest logit is the first one), and the probabilities are put
back with gather(dim, order) instead of with the inverse permutation, so they land at the wrong logits."""
import torch


def run_softmax(in_features, dim):
    if in_features.numel() == 0:
        return in_features.clone()
    dtype = in_features.dtype
    x = in_features.float() if dtype in (torch.half, torch.bfloat16) else in_features
    ordered, order = torch.sort(x, dim=dim, descending=True)
    # biggest one comes first now
    biggest = ordered.select(dim, 0).unsqueeze(dim) if x.ndim else ordered
    biggest = biggest.detach()
    biggest = torch.where(torch.isneginf(biggest), torch.zeros_like(biggest), biggest)
    e = (ordered - biggest).exp()
    s = e.sum(dim, keepdim=True)
    p = e / s.masked_fill(s == 0, 1)
    # undo the sorting
    p = p.gather(dim, order)
    return p.to(dtype)
