import torch

from cs336_basics.kernels import Softmax, attend, heads, matmul, turn


def run_softmax(in_features, dim):
    return Softmax.apply(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attend(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return matmul(in_features, weights)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return turn(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
):
    return run_multihead_self_attention_with_rope(
        d_model, num_heads, None, None, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features
    )


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight,
    in_features, token_positions=None,
):
    length = in_features.shape[-2]
    q, k, v = (heads(matmul(in_features, w), num_heads) for w in (q_proj_weight, k_proj_weight, v_proj_weight))
    if theta is not None:
        p = torch.arange(length) if token_positions is None else token_positions
        q, k = (turn(t, p.unsqueeze(-2), theta) for t in (q, k))
    causal = torch.arange(length).unsqueeze(1).ge(torch.arange(length))
    out = attend(q, k, v, causal)
    return matmul(torch.cat(out.unbind(-3), -1), o_proj_weight)
