import torch
from torch.func import functional_call

from cs336_basics.nn import attention, functional, linear, rope


def run_softmax(in_features, dim):
    return functional.softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return functional.scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return functional_call(linear.Linear(d_in, d_out), {"weight": weights}, (in_features,))


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rope.RotaryPositionalEmbedding(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def _named(q, k, v, o):
    return {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "o_proj.weight": o}


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    module = attention.CausalMultiHeadSelfAttention(d_model, num_heads)
    weights = _named(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return functional_call(module, weights, (in_features,))


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
    in_features, token_positions=None,
):
    turn = rope.RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len)
    module = attention.CausalMultiHeadSelfAttention(d_model, num_heads, turn)
    weights = _named(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return functional_call(module, weights, (in_features, token_positions))


def run_scaled_dot_product_attention_module(Q, K, V, mask, dropout, training, seed):
    torch.manual_seed(seed)
    module = attention.ScaledDotProductAttention(dropout)
    module.train(training)
    return module(Q, K, V, mask, return_weights=True)


def run_multihead_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, query, key, value, mask=None
):
    weights = _named(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return functional_call(attention.MultiHeadAttention(d_model, num_heads), weights, (query, key, value, mask))
