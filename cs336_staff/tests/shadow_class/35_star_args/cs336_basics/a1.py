import torch
from einops import rearrange, reduce


def softmax(in_features, dim):
    x = in_features if in_features.dtype == torch.float64 else in_features.float()
    x = torch.moveaxis(x, dim, 0)
    x = (x - reduce(x, "i ... -> 1 ...", "max")).exp()
    return torch.moveaxis(x / reduce(x, "i ... -> 1 ...", "sum"), 0, dim).to(in_features.dtype)


def attention(Q, K, V, mask=None):
    """The shift by the maximum and the normaliser in one go, over three axes (query, key, feature)."""
    t = torch.float64 if Q.dtype == torch.float64 else torch.float32
    q, k, v = Q.to(t), K.to(t), V.to(t)
    s = (q[..., :, None, :] * k[..., None, :, :]).sum(-1) / Q.shape[-1] ** 0.5
    if mask is None:
        mask = torch.ones(1, 1, dtype=torch.bool)
    mask = mask | torch.zeros(1, 1, dtype=torch.bool)
    lost = ~mask.any(-1, keepdim=True)
    s = s.masked_fill(~mask, -torch.inf).masked_fill(lost, 0.0)
    w = softmax(s, -1).masked_fill(lost, 0.0)
    return (w[..., :, :, None] * v[..., None, :, :]).sum(-2).to(Q.dtype)


def linear(d_in, d_out, weights, in_features):
    assert weights.shape == (d_out, d_in)
    return in_features @ rearrange(weights, "o i -> i o")


def rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    x = rearrange(in_query_or_key, "... (i c) -> c ... i", c=2)
    a = token_positions[..., None] * theta ** (-torch.arange(0, d_k, 2) / d_k)
    y = x[0] * a.cos() - x[1] * a.sin(), x[0] * a.sin() + x[1] * a.cos()
    return rearrange(list(y), "c ... i -> ... (i c)")


def mha(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, turn=None):
    project = (linear(d_model, d_model, w, in_features) for w in (q_proj_weight, k_proj_weight, v_proj_weight))
    q, k, v = (rearrange(x, "... t (h d) -> ... h t d", h=num_heads) for x in project)
    if turn:
        q, k = turn(q), turn(k)
    n = in_features.shape[-2]
    y = attention(q, k, v, torch.ones(n, n, dtype=torch.bool).tril())
    return linear(d_model, d_model, o_proj_weight, rearrange(y, "... h t d -> ... t (h d)"))


def mha_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    p = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
    turn = lambda x: rope(d_model // num_heads, theta, max_seq_len, x, p[..., None, :])
    return mha(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, turn)
