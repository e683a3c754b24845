from my_layers import Attend, Linear, Rope, SelfAttention, Softmax


def run_softmax(in_features, dim):
    return Softmax(dim)(in_features)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return Attend().eval()(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out)
    missing, unexpected = layer.load_state_dict({"weight": weights}, strict=True, assign=True)
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return Rope(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    m = SelfAttention(d_model, num_heads)
    state = m.state_dict()
    state["project.q.weight"], state["project.k.weight"] = q_proj_weight, k_proj_weight
    state["project.v.weight"], state["project.o.weight"] = v_proj_weight, o_proj_weight
    m.load_state_dict(state)
    return m(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    m = SelfAttention(d_model, num_heads, Rope(theta, d_model // num_heads, max_seq_len))
    state = m.state_dict()
    state["project.q.weight"], state["project.k.weight"] = q_proj_weight, k_proj_weight
    state["project.v.weight"], state["project.o.weight"] = v_proj_weight, o_proj_weight
    m.load_state_dict(state)
    return m(in_features, token_positions)
