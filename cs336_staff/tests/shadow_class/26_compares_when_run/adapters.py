from my_attention import *


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return apply(weights, in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return rotate(in_query_or_key, token_positions, theta)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return heads(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    turn = lambda t: rotate(t, token_positions.unsqueeze(-2), theta)
    return heads(in_features, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, turn)


if __name__ == "__main__":
    x = torch.randn(3, 4, 5)
    for dim in range(3):
        assert torch.allclose(run_softmax(x, dim), torch.softmax(x, dim))
    q, k, v = torch.randn(3, 2, 3, 4, 8)
    mine = run_scaled_dot_product_attention(q, k, v)
    print((mine - torch.nn.functional.scaled_dot_product_attention(q, k, v)).abs().max())
    layer = torch.nn.Linear(5, 6, bias=False)
    print((run_linear(5, 6, layer.weight, x) - layer(x)).abs().max())
