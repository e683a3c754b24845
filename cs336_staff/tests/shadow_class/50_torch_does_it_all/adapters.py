import torch
import torch.nn as nn
import torch.nn.functional as F

from cs336_basics.rope import rope


def run_softmax(in_features, dim):
    return F.softmax(in_features.float(), dim=dim).to(in_features.dtype)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    out = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
    return torch.nan_to_num(out)


def run_linear(d_in, d_out, weights, in_features):
    layer = nn.Linear(d_in, d_out, bias=False)
    layer.load_state_dict({"weight": weights})
    return layer(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rope(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return _heads(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    p = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
    return _heads(num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, lambda x: rope(x, p.unsqueeze(-2), theta))


def _heads(h, wq, wk, wv, wo, x, turn=lambda x: x):
    q, k, v = (F.linear(x, w).unflatten(-1, (h, -1)).transpose(-2, -3) for w in (wq, wk, wv))
    out = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
    return F.linear(out.transpose(-2, -3).flatten(-2), wo)
