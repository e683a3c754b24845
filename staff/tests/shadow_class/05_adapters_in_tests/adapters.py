"""The seam between your code and the tests: each function calls what you wrote and returns what it gives."""


def run_softmax(in_features, dim):
    raise NotImplementedError


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    raise NotImplementedError


def run_linear(d_in, d_out, weights, in_features):
    raise NotImplementedError


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    raise NotImplementedError
