import torch


def attention(Q, K, V, mask=None, block=128):
    wide = torch.promote_types(Q.dtype, torch.float32)
    lead = torch.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2], () if mask is None else mask.shape[:-2])
    q, k, v = (x.to(wide).expand(*lead, *x.shape[-2:]) for x in (Q, K, V))
    m = None if mask is None else mask.expand(*lead, Q.shape[-2], K.shape[-2])
    return Flash.apply(q, k, v, m, block).to(Q.dtype)


def scores(q, k, mask, i, j, n):
    s = q[..., i : i + n, :] @ k[..., j : j + n, :].mT * q.shape[-1] ** -0.5
    return s if mask is None else s.masked_fill(~mask[..., i : i + n, j : j + n], -torch.inf)


class Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask, n):
        outs, lses = [], []
        for i in range(0, q.shape[-2], n):
            rows = q[..., i : i + n, :1]
            m = torch.full_like(rows, torch.finfo(q.dtype).min)
            l = torch.zeros_like(rows)
            o = torch.zeros_like(v[..., :1, :]) * l
            for j in range(0, k.shape[-2], n):
                s = scores(q, k, mask, i, j, n)
                old, m = m, torch.maximum(m, s.amax(-1, keepdim=True))
                p = torch.exp(s - m)
                f = torch.exp(old - m)
                l = f * l + p.sum(-1, keepdim=True)
                o = f * o + p @ v[..., j : j + n, :]
            l = torch.where(l == 0, torch.ones_like(l), l)
            outs.append(o / l)
            lses.append(m + l.log())
        out, lse = torch.cat(outs, -2), torch.cat(lses, -2)
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.n = n
        return out

    @staticmethod
    def backward(ctx, do):
        q, k, v, mask, out, lse = ctx.saved_tensors
        n, scale = ctx.n, q.shape[-1] ** -0.5
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        d = (do * out).sum(-1, keepdim=True)
        for i in range(0, q.shape[-2], n):
            r = slice(i, i + n)
            for j in range(0, k.shape[-2], n):
                c = slice(j, j + n)
                p = torch.exp(scores(q, k, mask, i, j, n) - lse[..., r, :])
                ds = p * (do[..., r, :] @ v[..., c, :].mT - d[..., r, :]) * scale
                dv[..., c, :] += p.mT @ do[..., r, :]
                dq[..., r, :] += ds @ k[..., c, :]
                dk[..., c, :] += ds.mT @ q[..., r, :]
        return dq, dk, dv, None, None
