import torch

import cs336_basics.flash as flash
from cs336_basics.flash import eager


def run_softmax(in_features, dim):
    return flash.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return eager(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return flash.rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    Q, K, V = (flash.split(in_features @ w.T, num_heads) for w in (q_proj_weight, k_proj_weight, v_proj_weight))
    return flash.merge(eager(Q, K, V, flash.causal(in_features.shape[-2]))) @ o_proj_weight.T


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    p = token_positions[..., None, :]
    Q, K, V = (flash.split(in_features @ w.T, num_heads) for w in (q_proj_weight, k_proj_weight, v_proj_weight))
    Q, K = flash.rope(Q, p, theta), flash.rope(K, p, theta)
    return flash.merge(eager(Q, K, V, flash.causal(in_features.shape[-2]))) @ o_proj_weight.T
