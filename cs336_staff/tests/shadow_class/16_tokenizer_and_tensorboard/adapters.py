import tiktoken
import torch
from torch.utils.tensorboard import SummaryWriter

from cs336_basics.basics import RotaryEmbedding, dot_attention, mhsa, softmax

writer: SummaryWriter | None = None


def tokens(text):
    return torch.tensor(tiktoken.get_encoding("gpt2").encode(text))


def run_softmax(in_features, dim):
    return softmax(in_features, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return dot_attention(Q, K, V, mask)


def run_linear(d_in, d_out, weights, in_features):
    return torch.matmul(in_features, weights.t())


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return RotaryEmbedding(d_k, theta, max_seq_len).forward(in_query_or_key, token_positions)


def run_multihead_self_attention(d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features):
    return mhsa(in_features, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, num_heads)


def run_multihead_self_attention_with_rope(d_model, num_heads, max_seq_len, theta, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None):
    rope = RotaryEmbedding(d_model // num_heads, theta, max_seq_len)
    return mhsa(in_features, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, num_heads, rope, token_positions)
