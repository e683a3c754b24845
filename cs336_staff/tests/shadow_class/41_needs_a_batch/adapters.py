from cs336_basics.nn.functional import scaled_dot_product_attention, softmax
from cs336_basics.nn.layers import MultiHead, Rotary, linear


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return linear(weights, in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return Rotary(theta)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return MultiHead(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    return MultiHead(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, Rotary(theta))(in_features, token_positions)
