import torch
from einops.layers.torch import Rearrange
from torch import nn


class Softmax(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        y = (y - y.amax(self.dim, keepdim=True)).exp()
        return (y / y.sum(self.dim, keepdim=True)).to(x.dtype)


class Hide(nn.Module):
    def forward(self, scores, mask):
        if mask is None:
            return scores
        return scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0)


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.hide, self.softmax = Hide(), Softmax(-1)

    def forward(self, Q, K, V, mask=None):
        wide = torch.promote_types(Q.dtype, torch.float32)
        weights = self.softmax(self.hide(Q.to(wide) @ K.to(wide).mT * Q.shape[-1] ** -0.5, mask))
        if mask is not None:
            weights = weights * mask
        return (weights @ V.to(wide)).to(Q.dtype)


class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.reset_parameters()

    def reset_parameters(self):
        s = (2 / sum(self.weight.shape)) ** 0.5
        nn.init.trunc_normal_(self.weight, std=s, a=-3 * s, b=3 * s)

    def forward(self, x):
        return x @ self.weight.T


class Rope(nn.Module):
    def __init__(self, theta, d_k, n):
        super().__init__()
        self.pairs, self.back = Rearrange("... (i c) -> ... i c", c=2), Rearrange("... i c -> ... (i c)")
        a = torch.arange(n).unsqueeze(1) * theta ** (-torch.arange(0, d_k, 2) / d_k)
        rotation = torch.stack([a.cos(), a.sin(), -a.sin(), a.cos()], -1).unflatten(-1, (2, 2))
        self.register_buffer("rotation", rotation, persistent=False)

    def forward(self, x, positions):
        return self.back((self.pairs(x).unsqueeze(-2) @ self.rotation[positions]).squeeze(-2))


class SelfAttention(nn.Module):
    def __init__(self, d, h, rope=None):
        super().__init__()
        self.project = nn.ModuleDict({name: Linear(d, d) for name in "qkvo"})
        self.split = Rearrange("... t (h d) -> ... h t d", h=h)
        self.merge = Rearrange("... h t d -> ... t (h d)")
        self.attend, self.rope = Attend(), rope

    def forward(self, x, positions=None):
        q, k, v = (self.split(self.project[name](x)) for name in "qkv")
        t = x.shape[-2]
        if self.rope is not None:
            positions = torch.arange(t) if positions is None else positions
            q, k = self.rope(q, positions.unsqueeze(-2)), self.rope(k, positions.unsqueeze(-2))
        return self.project["o"](self.merge(self.attend(q, k, v, torch.ones(t, t, dtype=torch.bool).tril())))
