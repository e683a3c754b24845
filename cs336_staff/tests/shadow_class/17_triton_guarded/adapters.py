from cs336_basics import attention, layers


def run_softmax(in_features, dim):
    return attention.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention.sdpa(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    l = layers.Linear(d_in, d_out)
    l.weight.data = weights
    return l(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return layers.RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    m = layers.MHSA(d_model, num_heads)
    m.qkv.weight.data[:d_model] = q_proj_weight
    m.qkv.weight.data[d_model : 2 * d_model] = k_proj_weight
    m.qkv.weight.data[2 * d_model :] = v_proj_weight
    m.out.weight.data = o_proj_weight
    return m(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    m = layers.MHSA(d_model, num_heads, layers.RoPE(theta, d_model // num_heads, max_seq_len))
    m.qkv.weight.data[:d_model] = q_proj_weight
    m.qkv.weight.data[d_model : 2 * d_model] = k_proj_weight
    m.qkv.weight.data[2 * d_model :] = v_proj_weight
    m.out.weight.data = o_proj_weight
    return m(in_features, token_positions)
