import torch

from cs336_basics.nn import ScaledDotProductAttention, apply_rope, multihead, scaled_dot_product_attention, softmax


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return apply_rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return multihead(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    return multihead(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, theta, token_positions)


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    torch.manual_seed(seed)
    module = ScaledDotProductAttention(dropout)
    module.train(training)
    return module(Q, K, V, mask, return_weights=True)
