import torch

from attention import attention
from layers import SelfAttention, linear, rotate
from my_softmax import softmax


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return linear(in_features, weights)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rotate(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    attn = SelfAttention(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attn(in_features)


def run_multihead_self_attention_with_rope(
    d_model,
    num_heads,
    max_seq_len,
    theta,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    in_features,
    token_positions=None,
):
    attn = SelfAttention(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    return attn(in_features, token_positions, theta)
