import torch

from model import Linear, MultiHeadSelfAttention, RoPE, scaled_dot_product_attention, softmax


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out)
    layer.weight.data = weights
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    m = MultiHeadSelfAttention(d_model, num_heads)
    m.load(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return m(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    m = MultiHeadSelfAttention(d_model, num_heads, RoPE(theta, d_model // num_heads, max_seq_len))
    m.load(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return m(in_features, torch.arange(in_features.shape[-2]) if token_positions is None else token_positions)
