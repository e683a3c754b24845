import torch
from einops import einsum, rearrange


def run_softmax(in_features, dim):
    x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))
    x = torch.exp(x - x.amax(dim, keepdim=True))
    return (x / x.sum(dim, keepdim=True)).to(in_features.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    t = torch.promote_types(Q.dtype, torch.float32)
    scores = einsum(Q.to(t), K.to(t), "... q d, ... k d -> ... q k") / Q.shape[-1] ** 0.5
    if mask is None:
        weights = run_softmax(scores, -1)
    else:
        scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~mask.any(-1, keepdim=True), 0.0)
        weights = run_softmax(scores, -1).masked_fill(~mask, 0.0)
    return einsum(weights, V.to(t), "... q k, ... k d -> ... q d").to(Q.dtype)


def run_linear(d_in, d_out, weights, in_features):
    return einsum(weights, in_features, "o i, ... i -> ... o")


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    angle = token_positions.unsqueeze(-1) * theta ** (-torch.arange(0, d_k, 2) / d_k)
    x, y = rearrange(in_query_or_key, "... (i c) -> c ... i", c=2)
    turned = [x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()]
    return rearrange(turned, "c ... i -> ... (i c)")


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return _heads(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, lambda x: x)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    # all sequences of a batch have the same positions anyway
    positions = token_positions.reshape(-1, token_positions.shape[-1])[0]
    turn = lambda x: run_rope(d_model // num_heads, theta, max_seq_len, x, positions)
    return _heads(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, turn)


def _heads(h, wq, wk, wv, wo, x, turn):
    q, k, v = (rearrange(run_linear(None, None, w, x), "... t (h d) -> ... h t d", h=h) for w in (wq, wk, wv))
    causal = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    y = run_scaled_dot_product_attention(turn(q), turn(k), v, causal)
    return run_linear(None, None, wo, rearrange(y, "... h t d -> ... t (h d)"))
