import torch

import cs336_basics
import cs336_basics.model

model_base = cs336_basics.model


def run_softmax(in_features, dim):
    return model_base.softmax(in_features, dim=dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return getattr(model_base, "scaled_dot_product_attention")(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    linear = model_base.Linear(d_in, d_out)
    linear.load_state_dict({"weight": weights})
    return linear(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return model_base.RotaryEmbedding(max_seq_len, d_k, theta)(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    m = model_base.CausalMultiHeadSelfAttention(d_model, num_heads)
    m.load_state_dict({f"{n}_proj.weight": w for n, w in zip("qkvo", (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight))})
    return m(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    m = model_base.CausalMultiHeadSelfAttention(d_model, num_heads, model_base.RotaryEmbedding(max_seq_len, d_model // num_heads, theta))
    m.load_state_dict({f"{n}_proj.weight": w for n, w in zip("qkvo", (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight))})
    return m(in_features, torch.arange(in_features.shape[-2]) if token_positions is None else token_positions)
