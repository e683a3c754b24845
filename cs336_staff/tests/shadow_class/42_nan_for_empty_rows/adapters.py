import torch

from mine.model import RoPE, mha, sdpa, softmax


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return sdpa(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return torch.matmul(in_features, weights.T)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return mha(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    rope = RoPE(theta, d_model // num_heads, max_seq_len)
    return mha(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, rope, token_positions)
