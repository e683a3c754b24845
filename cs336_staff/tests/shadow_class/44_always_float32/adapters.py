import torch


def run_softmax(in_features, dim):
    x = in_features.float()
    x = torch.exp(x - torch.amax(x, dim, keepdim=True))
    return (x / x.sum(dim, keepdim=True)).to(in_features.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    q, k, v = Q.float(), K.float(), V.float()
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
        return (run_softmax(scores, -1).masked_fill(~mask, 0.0) @ v).to(Q.dtype)
    return (run_softmax(scores, -1) @ v).to(Q.dtype)


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    x = in_query_or_key
    a = token_positions[..., None] * theta ** -(torch.arange(0, d_k, 2) / d_k)
    e, o = x[..., ::2], x[..., 1::2]
    return torch.stack([e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()], -1).flatten(-2)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return _mha(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, lambda x: x)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    p = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
    turn = lambda x: run_rope(x.shape[-1], theta, max_seq_len, x, p.unsqueeze(-2))
    return _mha(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, turn)


def _mha(x, h, wq, wk, wv, wo, turn):
    q, k, v = ((x @ w.T).unflatten(-1, (h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
    causal = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    return run_scaled_dot_product_attention(turn(q), turn(k), v, causal).transpose(-2, -3).flatten(-2) @ wo.T
