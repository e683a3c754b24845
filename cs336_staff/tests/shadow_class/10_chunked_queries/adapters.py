import cs336_basics.attention as A


def run_softmax(in_features, dim):
    return A.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return A.attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return A.linear(in_features, weights)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return A.rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return A.multihead(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    return A.multihead(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, theta, token_positions)


def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    return A.blockwise(Q, K, V, mask, block_size or 128)
