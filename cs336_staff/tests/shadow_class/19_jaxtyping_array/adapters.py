from cs336_basics import transformer as tr


def run_softmax(in_features, dim):
    return tr.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return tr.attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return tr.linear(weights, in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return tr.rope(in_query_or_key, tr.table(max_seq_len, d_k, theta), token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return tr.multihead(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    cs = tr.table(max_seq_len, d_model // num_heads, theta)
    return tr.multihead(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, cs, token_positions)
