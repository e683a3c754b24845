import torch
from einops import einsum, rearrange, repeat


def _compute_dtype(x):
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def softmax(x, dim):
    logits = x.to(_compute_dtype(x))
    logits = logits - torch.amax(logits, dim=dim, keepdim=True)
    log_z = torch.log(torch.exp(logits).sum(dim=dim, keepdim=True))
    return torch.exp(logits - log_z).to(x.dtype)


def dot_attention(query, key, value, mask=None):
    dt = _compute_dtype(query)
    scale = 1 / query.size(-1) ** 0.25  # half of it on each side keeps the products small
    logits = einsum(query.to(dt) * scale, key.to(dt) * scale, "... i d, ... j d -> ... i j")
    if mask is None:
        mask = torch.tensor(True, device=query.device)
    mask = torch.broadcast_to(mask, torch.broadcast_shapes(mask.shape, logits.shape))
    visible = mask.any(dim=-1, keepdim=True)
    logits = torch.where(mask, logits, -torch.inf)
    logits = torch.where(visible, logits, torch.zeros_like(logits))
    probs = softmax(logits, dim=-1)
    out = einsum(probs, value.to(dt), "... i j, ... j d -> ... i d")
    return torch.where(visible, out, torch.zeros_like(out)).to(query.dtype)


class RotaryEmbedding:
    def __init__(self, d_k, theta, max_seq_len):
        freqs = theta ** -(torch.arange(0, d_k, 2, dtype=torch.float32) / d_k)
        freqs = einsum(torch.arange(max_seq_len, dtype=torch.float32), freqs, "n, f -> n f")
        self.freqs = repeat(freqs, "n f -> n (f r)", r=2)

    @staticmethod
    def rotate_half(x):
        x = rearrange(x, "... (d r) -> ... d r", r=2)
        x1, x2 = x.unbind(dim=-1)
        return rearrange(torch.stack((-x2, x1), dim=-1), "... d r -> ... (d r)")

    def forward(self, x, positions):
        f = self.freqs[positions]
        return x * f.cos() + self.rotate_half(x) * f.sin()


def mhsa(x, wq, wk, wv, wo, heads, rope=None, positions=None):
    q, k, v = (einsum(x, rearrange(w, "(h e) d -> h e d", h=heads), "... n d, h e d -> ... h n e") for w in (wq, wk, wv))
    n = x.shape[-2]
    if rope is not None:
        positions = torch.arange(n) if positions is None else positions
        q, k = (rope.forward(t, rearrange(positions, "... n -> ... 1 n")) for t in (q, k))
    causal = torch.ones((n, n), dtype=torch.bool).triu(1).logical_not()
    return einsum(dot_attention(q, k, v, causal), rearrange(wo, "d (h e) -> d h e", h=heads), "... h n e, d h e -> ... n d")
