import torch

from cs336_basics.nn import attention as A


def run_softmax(in_features, dim):
    return A.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return A.scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    layer = A.Linear(d_in, d_out)
    layer.weight = torch.nn.Parameter(weights)
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return A.apply_rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    m = A.Attention(d_model, num_heads)
    for l, w in zip((m.wq, m.wk, m.wv, m.wo), (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)):
        l.weight.data.copy_(w)
    return m(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    m = A.Attention(d_model, num_heads, theta=theta)
    for l, w in zip((m.wq, m.wk, m.wv, m.wo), (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)):
        l.weight.data.copy_(w)
    return m(in_features, token_positions)
