import torch

from cs336_basics.nn.attention import CausalMultiHeadSelfAttention
from cs336_basics.nn.functional import scaled_dot_product_attention, softmax
from cs336_basics.nn.linear import Linear
from cs336_basics.nn.rope import RotaryPositionalEmbedding


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    linear = Linear(d_in, d_out, dtype=weights.dtype)
    linear.weight.data = weights
    return linear(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RotaryPositionalEmbedding(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    attention = CausalMultiHeadSelfAttention(d_model, num_heads)
    attention.fill(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attention(in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
    in_features, token_positions=None,
):
    rope = RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len)
    attention = CausalMultiHeadSelfAttention(d_model, num_heads, rope)
    attention.fill(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    return attention(in_features, token_positions)
