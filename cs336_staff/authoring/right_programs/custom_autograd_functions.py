"""Softmax, attention and blockwise attention as autograd.Functions with gradients by hand, modules, RoPE by rotate-and-repeat."""

import math

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import functional_call


def compute_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def normalise_(s: Tensor, dim: int) -> Tensor:
    """Softmax of `s` along `dim`, written over it."""
    if s.numel() == 0:
        return s
    top = s.amax(dim, keepdim=True)
    top[top == -math.inf] = 0
    s.sub_(top).exp_()
    total = s.sum(dim, keepdim=True)
    total[total == 0] = 1
    return s.div_(total)


class Softmax(Function):
    @staticmethod
    def forward(ctx, x: Tensor, dim: int) -> Tensor:
        p = normalise_(x.to(compute_dtype(x), copy=True), dim)
        ctx.save_for_backward(p)
        ctx.dim, ctx.dtype = dim, x.dtype
        return p.to(x.dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, g: Tensor):
        (p,) = ctx.saved_tensors
        gp = g.to(p.dtype) * p
        return (gp - p * gp.sum(ctx.dim, keepdim=True)).to(ctx.dtype), None


class Weights(Function):
    """The attention weights, in float32 or better."""

    @staticmethod
    def forward(ctx, Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
        dtype = compute_dtype(Q)
        scores = torch.matmul(Q.to(dtype), K.to(dtype).mT).mul_(1 / math.sqrt(max(1, Q.shape[-1])))
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -math.inf)
        P = normalise_(scores, -1)
        ctx.save_for_backward(Q, K, P)
        return P

    @staticmethod
    @once_differentiable
    def backward(ctx, G: Tensor):
        Q, K, P = ctx.saved_tensors
        dS = (G - (G * P).sum(-1, keepdim=True)) * P / math.sqrt(max(1, Q.shape[-1]))
        dQ = torch.matmul(dS, K.to(P.dtype)).sum_to_size(Q.shape).to(Q.dtype)
        dK = torch.matmul(dS.mT, Q.to(P.dtype)).sum_to_size(K.shape).to(K.dtype)
        return dQ, dK, None


class Attention(Function):
    @staticmethod
    def forward(ctx, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        dtype = compute_dtype(Q)
        scores = torch.matmul(Q.to(dtype), K.to(dtype).mT).mul_(1 / math.sqrt(max(1, Q.shape[-1])))
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not(), -math.inf)
        P = normalise_(scores, -1)
        O = torch.matmul(P, V.to(dtype))
        ctx.save_for_backward(Q, K, V, P, O)
        return O.to(Q.dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, G: Tensor):
        Q, K, V, P, O = ctx.saved_tensors
        G = G.to(P.dtype)
        dV = torch.matmul(P.mT, G)
        dS = torch.matmul(G, V.to(P.dtype).mT) - (G * O).sum(-1, keepdim=True)
        dS = dS * P / math.sqrt(max(1, Q.shape[-1]))
        dQ, dK = torch.matmul(dS, K.to(P.dtype)), torch.matmul(dS.mT, Q.to(P.dtype))
        return (*(d.sum_to_size(x.shape).to(x.dtype) for d, x in ((dQ, Q), (dK, K), (dV, V))), None)


class Blockwise(Function):
    """The maxima and the sums are kept for the backward pass, which computes each block again."""

    @staticmethod
    def forward(ctx, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, size: int) -> Tensor:
        ctx.save_for_backward(Q, K, V, mask)
        ctx.size = size
        batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
        dtype = compute_dtype(Q)
        n = Q.shape[-2]
        O = Q.new_empty((*batch, n, V.shape[-1]))
        M = Q.new_full((*batch, n, 1), -math.inf, dtype=dtype)
        L = Q.new_zeros((*batch, n, 1), dtype=dtype)
        for a in range(0, n, size):
            rows = slice(a, a + size)
            m, l = M[..., rows, :], L[..., rows, :]
            o = Q.new_zeros((*l.shape[:-1], V.shape[-1]), dtype=dtype)
            for b in range(0, K.shape[-2], size):
                s = Blockwise.scores(Q, K, mask, rows, slice(b, b + size))
                new = torch.maximum(m, s.amax(-1, keepdim=True))
                base = new.masked_fill(new == -math.inf, 0)
                factor = torch.exp(m - base)
                p = torch.exp(s - base)
                l.mul_(factor).add_(p.sum(-1, keepdim=True))
                o.mul_(factor).add_(torch.matmul(p, V[..., b : b + size, :].to(dtype)))
                m.copy_(new)
            m[m == -math.inf] = 0
            l[l == 0] = 1
            O[..., rows, :] = o.div_(l)
        ctx.M, ctx.L = M, L
        return O

    @staticmethod
    def scores(Q: Tensor, K: Tensor, mask: Tensor | None, rows: slice, columns: slice) -> Tensor:
        dtype = compute_dtype(Q)
        s = torch.matmul(Q[..., rows, :].to(dtype), K[..., columns, :].to(dtype).mT)
        s = s * (1 / math.sqrt(max(1, Q.shape[-1])))
        if mask is None:
            return s
        rows = rows if mask.shape[-2] != 1 else slice(None)
        columns = columns if mask.shape[-1] != 1 else slice(None)
        return s.masked_fill(mask[..., rows, columns].logical_not(), -math.inf)

    @staticmethod
    @once_differentiable
    def backward(ctx, G: Tensor):
        Q, K, V, mask = ctx.saved_tensors
        M, L, size = ctx.M, ctx.L, ctx.size
        dtype = M.dtype
        dQ, dK, dV = (torch.zeros(x.shape, dtype=dtype, device=x.device) for x in (Q, K, V))
        scale = 1 / math.sqrt(max(1, Q.shape[-1]))
        for a in range(0, Q.shape[-2], size):
            rows = slice(a, a + size)
            q, g = Q[..., rows, :].to(dtype), G[..., rows, :].to(dtype)
            columns = [slice(b, b + size) for b in range(0, K.shape[-2], size)]

            def again(span):
                p = torch.exp(Blockwise.scores(Q, K, mask, rows, span) - M[..., rows, :]) / L[..., rows, :]
                return p, torch.matmul(g, V[..., span, :].to(dtype).mT)

            mean = torch.zeros_like(M[..., rows, :])
            for span in columns:
                p, dp = again(span)
                mean = mean + (p * dp).sum(-1, keepdim=True)
            for span in columns:
                p, dp = again(span)
                ds = p * (dp - mean) * scale
                for d, at, part in (
                    (dV, span, torch.matmul(p.mT, g)),
                    (dK, span, torch.matmul(ds.mT, q)),
                    (dQ, rows, torch.matmul(ds, K[..., span, :].to(dtype))),
                ):
                    target = d[..., at, :]
                    target += part.sum_to_size(target.shape)
        return dQ.to(Q.dtype), dK.to(K.dtype), dV.to(V.dtype), None, None


class Linear(nn.Module):
    def __init__(self, d_in: int, d_out: int, device=None, dtype=None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        sigma = math.sqrt(2 / (d_in + d_out))
        nn.init.trunc_normal_(self.weight, 0.0, sigma, -3 * sigma, 3 * sigma)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensordot(x, self.weight, dims=([-1], [1]))


class Rope(nn.Module):
    def __init__(self, theta: float, d_k: int, max_seq_len: int, device=None) -> None:
        super().__init__()
        inv_freq = 1.0 / (theta ** (torch.arange(0, d_k, 2, device=device).float() / d_k))
        t = torch.arange(max_seq_len, device=device).float()
        angles = torch.einsum("i,j->ij", t, inv_freq).repeat_interleave(2, dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @staticmethod
    def rotate_pairs(x: Tensor) -> Tensor:
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        positions = positions.to(torch.int64)
        wide = x.to(compute_dtype(x))
        return (wide * self.cos[positions] + self.rotate_pairs(wide) * self.sin[positions]).to(x.dtype)


class MultiHead(nn.Module):
    def __init__(self, d_model: int, num_heads: int, dtype=None, device=None) -> None:
        super().__init__()
        self.num_heads = num_heads
        for name in ("q", "k", "v", "o"):
            self.add_module(name, Linear(d_model, d_model, device, dtype))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).swapaxes(-2, -3)

    def forward(self, query, key, value, mask=None, rope=None, positions=None):
        q, k, v = self.heads(self.q(query)), self.heads(self.k(key)), self.heads(self.v(value))
        if rope is not None:
            q, k = rope(q, positions), rope(k, positions)
        return self.o(Attention.apply(q, k, v, mask).swapaxes(-2, -3).flatten(-2))


def with_weights(d_model, num_heads, wq, wk, wv, wo, args):
    module = MultiHead(d_model, num_heads, wq.dtype, wq.device)
    named = {"q.weight": wq, "k.weight": wk, "v.weight": wv, "o.weight": wo}
    return functional_call(module, named, args)


def not_later(n: int, device) -> Tensor:
    ones = torch.ones(n, n, dtype=torch.bool, device=device)
    return ones.triu(1).logical_not()


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    return Softmax.apply(in_features, dim)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return Attention.apply(Q, K, V, mask)


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    layer = Linear(d_in, d_out, weights.device, weights.dtype)
    return functional_call(layer, {"weight": weights}, (in_features,))


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return Rope(theta, d_k, max_seq_len, in_query_or_key.device)(in_query_or_key, token_positions)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    x = in_features
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return with_weights(d_model, num_heads, *weights, (x, x, x, not_later(x.shape[-2], x.device)))


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    x = in_features
    if token_positions is None:
        token_positions = torch.arange(x.shape[-2], device=x.device)
    rope = Rope(theta, d_model // num_heads, max_seq_len, x.device)
    args = (x, x, x, not_later(x.shape[-2], x.device), rope, token_positions[..., None, :])
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return with_weights(d_model, num_heads, *weights, args)


def run_scaled_dot_product_attention_module(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, dropout: float, training: bool, seed: int
) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    P = Weights.apply(Q, K, mask)
    if training and dropout > 0:
        keep = torch.empty(P.shape, device=P.device).bernoulli_(1 - dropout).bool()
        P = torch.where(keep, P / (1 - dropout), 0.0)
    return torch.matmul(P, V.to(P.dtype)).to(Q.dtype), P.to(Q.dtype)


def run_multihead_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    if mask is not None:
        kind = mask.dim() - query.dim()
        if kind == -1:
            mask = mask[..., None, None, :]
        elif kind == 0:
            mask = mask[..., None, :, :]
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return with_weights(d_model, num_heads, *weights, (query, key, value, mask))


def run_blockwise_attention(
    Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, block_size: int | None = None
) -> Tensor:
    return Blockwise.apply(Q, K, V, mask, block_size or 192)
