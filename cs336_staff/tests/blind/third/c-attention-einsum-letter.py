"""One mistake: in the last einsum the keys have two different letters, "...qk,...ld->...qd", so the weights are summed
over the keys by themselves (which gives 1) and the values by themselves: every query gets the plain sum of all values."""
import torch


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    acc = torch.promote_types(Q.dtype, torch.float32)
    sim = torch.einsum("...id,...jd->...ij", Q.to(acc), K.to(acc)) * max(1, Q.size(-1)) ** -0.5
    if mask is not None:
        sim = torch.where(mask, sim, -torch.inf)
    if sim.size(-1):
        top = sim.detach().amax(-1, keepdim=True)
        top = torch.where(top.isneginf(), 0.0, top)
        sim = (sim - top).exp()
        z = sim.sum(-1, keepdim=True)
        sim = sim / torch.where(z == 0, 1.0, z)
    return torch.einsum("...qk,...ld->...qd", sim, V.to(acc)).to(Q.dtype)
