import torch
from jaxtyping import Array, Bool, Float, Int


def softmax(x: Float[Array, "..."], dim: int) -> Float[Array, "..."]:
    small = x.dtype in (torch.float16, torch.bfloat16)
    y = x.float() if small else x
    y = torch.exp(y - torch.amax(y, dim, keepdim=True))
    y = y / torch.sum(y, dim, keepdim=True)
    return y.to(x.dtype) if small else y


def attention(
    Q: Float[Array, "... q d"],
    K: Float[Array, "... k d"],
    V: Float[Array, "... k v"],
    mask: Bool[Array, "... q k"] | None = None,
) -> Float[Array, "... q v"]:
    if Q.dtype in (torch.float16, torch.bfloat16):
        return attention(Q.float(), K.float(), V.float(), mask).to(Q.dtype)
    S = torch.einsum("...qd, ...kd -> ...qk", Q, K) / Q.shape[-1] ** 0.5
    if mask is None:
        return torch.einsum("...qk, ...kv -> ...qv", softmax(S, -1), V)
    S = torch.where(mask, S, torch.full_like(S, -torch.inf))
    lost = torch.isneginf(S).all(-1, keepdim=True)
    P = softmax(S.masked_fill(lost, 0.0), -1)
    return torch.einsum("...qk, ...kv -> ...qv", P.masked_fill(lost, 0.0), V)


def linear(W: Float[Array, "o i"], x: Float[Array, "... i"]) -> Float[Array, "... o"]:
    return torch.einsum("oi, ...i -> ...o", W, x)


def table(n: int, d: int, theta: float) -> Float[Array, "2 n d/2"]:
    a = torch.outer(torch.arange(n), theta ** (-torch.arange(0, d, 2) / d))
    return torch.stack([torch.cos(a), torch.sin(a)])


def rope(x: Float[Array, "... t d"], cs: Float[Array, "2 n d/2"], p: Int[Array, "... t"]) -> Float[Array, "... t d"]:
    c, s = cs[:, p]
    y = torch.stack([x[..., 0::2] * c - x[..., 1::2] * s, x[..., 1::2] * c + x[..., 0::2] * s], dim=-1)
    return y.flatten(-2)


def multihead(x, h, wq, wk, wv, wo, cs=None, p=None):
    t = x.shape[-2]
    q, k, v = (torch.einsum("hem, ...tm -> ...hte", w.reshape(h, -1, w.shape[-1]), x) for w in (wq, wk, wv))
    if cs is not None:
        p = torch.arange(t) if p is None else p
        q, k = rope(q, cs, p[..., None, :]), rope(k, cs, p[..., None, :])
    y = attention(q, k, v, torch.tril(torch.ones((t, t), dtype=torch.bool)))
    return torch.einsum("mhe, ...hte -> ...tm", wo.reshape(wo.shape[0], h, -1), y)
