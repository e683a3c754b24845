import torch


class Ops:
    """Named as in torch.nn.functional, written by myself."""

    def softmax(self, x, dim):
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        y = y - y.max(dim, keepdim=True).values
        y = y.exp()
        return y.div(y.sum(dim, keepdim=True)).to(x.dtype)

    def linear(self, x, weight):
        return torch.tensordot(x, weight, ([-1], [-1]))

    def scaled_dot_product_attention(self, q, k, v, attn_mask=None):
        wide = torch.promote_types(q.dtype, torch.float32)
        logits = torch.matmul(q.to(wide), k.to(wide).mT).div(q.shape[-1] ** 0.5)
        if attn_mask is None:
            return self.softmax(logits, -1).matmul(v.to(wide)).to(q.dtype)
        some = attn_mask.any(-1, keepdim=True)
        logits = logits.masked_fill(~attn_mask & some, -torch.inf)
        return self.softmax(logits, -1).mul(some).matmul(v.to(wide)).to(q.dtype)

    def rope(self, x, positions, theta):
        d = x.shape[-1]
        phase = positions.unsqueeze(-1) * torch.pow(torch.tensor(theta), torch.arange(0, d, 2).neg().div(d))
        sin, cos = phase.sin().repeat_interleave(2, -1), phase.cos().repeat_interleave(2, -1)
        sign = torch.tensor([-1.0, 1.0]).repeat(d // 2)
        flipped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return x * cos + flipped * sign * sin

    def multi_head_attention_forward(self, x, h, qkv, o, theta=None, positions=None):
        q, k, v = (self.linear(x, w).unflatten(-1, (h, -1)).movedim(-2, -3) for w in qkv)
        if theta is not None:
            q, k = (self.rope(t, positions.unsqueeze(-2), theta) for t in (q, k))
        n = x.shape[-2]
        heads = self.scaled_dot_product_attention(q, k, v, torch.ones(n, n).tril().bool())
        return self.linear(heads.movedim(-3, -2).flatten(-2), o)
