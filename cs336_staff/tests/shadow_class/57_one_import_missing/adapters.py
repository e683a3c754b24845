import torch


def run_softmax(in_features, dim):
    from cs336_basics.nn.functional import softmax

    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    from cs336_basics.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    from cs336_basics.nn.linear import Linear

    layer = Linear(d_in, d_out)
    layer.weight.data = weights
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    from cs336_basics.nn.rotary import RotaryPositionalEmbedding  # it is called rope.py now

    return RotaryPositionalEmbedding(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    from cs336_basics.nn.attention import causal_self_attention

    return causal_self_attention(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    from cs336_basics.nn.attention import causal_self_attention
    from cs336_basics.nn.rope import RotaryPositionalEmbedding

    rope = RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len)
    p = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
    turn = lambda x: rope(x, p.unsqueeze(-2))
    return causal_self_attention(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, turn)
