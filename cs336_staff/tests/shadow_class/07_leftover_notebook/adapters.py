import torch

from cs336_basics.model import Linear, MHA, RoPE, attention, softmax


def run_softmax(in_features, dim):
    print("softmax of", in_features.shape, "along", dim)
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    print(f"{Q.shape=} {K.shape=} {V.shape=}", "mask:", None if mask is None else mask.shape)
    return attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out)
    with torch.no_grad():
        layer.weight.copy_(weights)
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RoPE(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    m = MHA(d_model, num_heads)
    m.set_weights(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    out = m(in_features)
    print("MHA out", out.mean().item(), out.std().item())
    return out


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    m = MHA(d_model, num_heads, max_seq_len, theta)
    m.set_weights(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return m(in_features, token_positions)
