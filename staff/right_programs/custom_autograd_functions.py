"""Softmax, attention, RoPE and blockwise attention as autograd.Functions with gradients by hand, called by modules."""

import math

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import functional_call


def compute_dtype(x):
    return torch.promote_types(x.dtype, torch.float32)


def normalise_(s, dim):
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
    def forward(ctx, x, dim):
        p = normalise_(x.to(compute_dtype(x), copy=True), dim)
        ctx.save_for_backward(p)
        ctx.dim, ctx.dtype = dim, x.dtype
        return p.to(x.dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        gp = g.to(p.dtype) * p
        return (gp - p * gp.sum(ctx.dim, keepdim=True)).to(ctx.dtype), None


class Attention(Function):
    @staticmethod
    def forward(ctx, Q, K, V, mask):
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
    def backward(ctx, G):
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
    def forward(ctx, Q, K, V, mask, size):
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
    def scores(Q, K, mask, rows, columns):
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
    def backward(ctx, G):
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


class Rotation(Function):
    """The gradient of a rotation is the rotation back."""

    @staticmethod
    def turned(x, angles):
        half = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * angles.cos().repeat_interleave(2, -1) + half * angles.sin().repeat_interleave(2, -1)

    @staticmethod
    def forward(ctx, x, theta, positions):
        steps = torch.arange(x.shape[-1] // 2, dtype=torch.float64) * (2 / x.shape[-1])
        ctx.angles = (positions.unsqueeze(-1) * torch.pow(float(theta), -steps)).to(compute_dtype(x))
        return Rotation.turned(x.to(compute_dtype(x)), ctx.angles).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return Rotation.turned(g.to(compute_dtype(g)), -ctx.angles).to(g.dtype), None, None


class Linear(nn.Module):
    def __init__(self, d_in, d_out, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, device=device, dtype=dtype))
        sigma = math.sqrt(2 / (d_in + d_out))
        nn.init.trunc_normal_(self.weight, 0.0, sigma, -3 * sigma, 3 * sigma)

    def forward(self, x):
        return torch.tensordot(x, self.weight, dims=([-1], [1]))


class MultiHead(nn.Module):
    def __init__(self, d_model, num_heads, dtype=None, device=None):
        super().__init__()
        self.num_heads = num_heads
        for name in ("q", "k", "v", "o"):
            self.add_module(name, Linear(d_model, d_model, device, dtype))

    def heads(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).swapaxes(-2, -3)

    def forward(self, query, key, value, mask=None, turn=lambda x: x):
        q, k, v = turn(self.heads(self.q(query))), turn(self.heads(self.k(key))), self.heads(self.v(value))
        return self.o(Attention.apply(q, k, v, mask).swapaxes(-2, -3).flatten(-2))


def with_weights(d_model, num_heads, wq, wk, wv, wo, args):
    named = {"q.weight": wq, "k.weight": wk, "v.weight": wv, "o.weight": wo}
    return functional_call(MultiHead(d_model, num_heads, wq.dtype, wq.device), named, args)


def not_later(n, device):
    return torch.ones(n, n, dtype=torch.bool, device=device).triu(1).logical_not()


def run_softmax(in_features, dim):
    return Softmax.apply(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return Attention.apply(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return functional_call(Linear(d_in, d_out, weights.device, weights.dtype), {"weight": weights}, (in_features,))


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
                                 in_features):
    x = in_features
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return with_weights(d_model, num_heads, *weights, (x, x, x, not_later(x.shape[-2], x.device)))


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return Rotation.apply(in_query_or_key, theta, token_positions)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight,
                                           v_proj_weight, o_proj_weight, in_features, token_positions=None):
    x, weights = in_features, (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    at = torch.arange(x.shape[-2]) if token_positions is None else token_positions.unsqueeze(-2)
    args = x, x, x, not_later(x.shape[-2], x.device), lambda heads: Rotation.apply(heads, theta, at)
    return with_weights(d_model, num_heads, *weights, args)


def run_multihead_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key,
                            value, mask=None):
    if mask is not None:
        kind = mask.dim() - query.dim()
        if kind == -1:
            mask = mask[..., None, None, :]
        elif kind == 0:
            mask = mask[..., None, :, :]
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return with_weights(d_model, num_heads, *weights, (query, key, value, mask))


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    return Blockwise.apply(Q, K, V, mask, block_size or 192)
