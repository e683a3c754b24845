import torch


def run_softmax(in_features, dim):
    from cs336_basics.nn.functional import softmax

    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    from cs336_basics.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    from cs336_basics.nn.modules import Linear

    layer = Linear(d_in, d_out)
    layer.load_state_dict({"weight": weights})
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    from cs336_basics.nn.modules import RotaryPositionalEmbedding

    return RotaryPositionalEmbedding(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    from cs336_basics.nn.modules import CausalMultiHeadSelfAttention

    attention = CausalMultiHeadSelfAttention(d_model, num_heads)
    qkv = torch.stack([q_proj_weight, k_proj_weight, v_proj_weight])
    attention.load_state_dict({"qkv": qkv, "out": o_proj_weight})
    return attention(in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
    in_features, token_positions=None,
):
    from cs336_basics.nn.modules import CausalMultiHeadSelfAttention, RotaryPositionalEmbedding

    rope = RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len)
    attention = CausalMultiHeadSelfAttention(d_model, num_heads, rope)
    qkv = torch.stack([q_proj_weight, k_proj_weight, v_proj_weight])
    attention.load_state_dict({"qkv": qkv, "out": o_proj_weight})
    return attention(in_features, token_positions)


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    from cs336_basics.nn.blockwise import blockwise_attention

    return blockwise_attention(Q, K, V, mask, block_size=block_size)
