import torch

from numpy_attention import attention, rope, softmax


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    Q, K, V = ((in_features @ w.T).unflatten(-1, (num_heads, -1)).transpose(-2, -3) for w in (q_proj_weight, k_proj_weight, v_proj_weight))
    n = in_features.shape[-2]
    return attention(Q, K, V, torch.ones(n, n, dtype=torch.bool).tril()).transpose(-2, -3).flatten(-2) @ o_proj_weight.T


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    Q, K, V = ((in_features @ w.T).unflatten(-1, (num_heads, -1)).transpose(-2, -3) for w in (q_proj_weight, k_proj_weight, v_proj_weight))
    n = in_features.shape[-2]
    p = (torch.arange(n) if token_positions is None else token_positions)[..., None, :]
    Q, K = rope(Q, p, theta), rope(K, p, theta)
    return attention(Q, K, V, torch.ones(n, n, dtype=torch.bool).tril()).transpose(-2, -3).flatten(-2) @ o_proj_weight.T
