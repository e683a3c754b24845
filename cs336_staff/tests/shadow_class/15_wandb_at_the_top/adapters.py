from cs336_basics import attention as mine


def run_softmax(in_features, dim):
    return mine.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return mine.attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    layer = mine.Linear(d_in, d_out)
    layer.load_state_dict({"weight": weights})
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return mine.rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    m = mine.SelfAttention(d_model, num_heads)
    m.load_state_dict({"q.weight": q_proj_weight, "k.weight": k_proj_weight, "v.weight": v_proj_weight, "o.weight": o_proj_weight})
    return m(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    m = mine.SelfAttention(d_model, num_heads, theta)
    m.load_state_dict({"q.weight": q_proj_weight, "k.weight": k_proj_weight, "v.weight": v_proj_weight, "o.weight": o_proj_weight})
    return m(in_features, token_positions)
