import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "src"))

import torch

from transformer.attention import CausalSelfAttention, scaled_dot_product_attention, softmax
from transformer.layers import Linear, Rope


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out, dtype=weights.dtype)
    layer.load_state_dict({"W": weights})
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return Rope(theta, d_k, max_seq_len)(in_query_or_key, token_positions)


def _load(attn, q, k, v, o):
    attn.load_state_dict({"q.W": q, "k.W": k, "v.W": v, "o.W": o}, strict=False)
    return attn


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    attn = CausalSelfAttention(d_model, num_heads)
    return _load(attn, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)(in_features)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
    in_features, token_positions=None,
):
    attn = CausalSelfAttention(d_model, num_heads, Rope(theta, d_model // num_heads, max_seq_len))
    _load(attn, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    if token_positions is None:
        token_positions = torch.arange(in_features.size(-2))
    return attn(in_features, token_positions)
