import torch

from cs336_basics import nn_utils as U


def run_softmax(in_features, dim):
    return U.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return U.scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    lin = U.Linear(d_in, d_out)
    lin.weight.data = weights
    return lin(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return U.RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    m = U.MultiHeadSelfAttention(d_model, num_heads)
    for lin, w in zip((m.q, m.k, m.v, m.o), (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)):
        lin.weight.data = w
    return m(in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
    in_features, token_positions=None,
):
    m = U.MultiHeadSelfAttention(d_model, num_heads, U.RoPE(theta, d_model // num_heads, max_seq_len))
    for lin, w in zip((m.q, m.k, m.v, m.o), (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)):
        lin.weight.data = w
    return m(in_features, token_positions)
