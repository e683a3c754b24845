import torch

from cs336_basics.blocks import Projection, RoPE, SelfAttention, attention, initialise, softmax


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    layer = Projection(d_in, d_out)
    layer.kernel.data = weights.T
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def _build(d_model, num_heads, weights, rope=None):
    block = initialise(SelfAttention(d_model, num_heads, rope))
    for layer, weight in zip(block.projections, weights):
        layer.kernel.data = weight.T
    return block


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    return _build(d_model, num_heads, (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight))(in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
    in_features, token_positions=None,
):
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    block = _build(d_model, num_heads, weights, RoPE(theta, d_model // num_heads, max_seq_len))
    return block(in_features, torch.arange(in_features.shape[-2]) if token_positions is None else token_positions)
