import torch

from attn.core import Attn, bias_of, sdpa, softmax
from attn.pos import rope


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    # my code wants "True = hidden" like torch.nn.MultiheadAttention
    return sdpa(Q, K, V, None if mask is None else bias_of(~mask))


def run_linear(d_in, d_out, weights, in_features):
    return torch.addmm(torch.zeros(()), in_features.reshape(-1, d_in), weights.t()).reshape(*in_features.shape[:-1], d_out)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return Attn(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)(in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    return Attn(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, theta)(in_features, token_positions)
