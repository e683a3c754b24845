"""The seam between your code and the tests: each function calls what you wrote and returns what it gives.

The tests know these names and nothing else of yours, so you may lay out your own code as you like. You do not run this
file: `uv run pytest` imports it.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import functional_call


def run_softmax(in_features: Float[Tensor, " ..."], dim: int) -> Float[Tensor, " ..."]:
    """softmax of `in_features` along `dim`."""
    # BEGIN SOLUTION
    from cs336_basics.nn.functional import softmax

    return softmax(in_features, dim)
    # END SOLUTION


def run_scaled_dot_product_attention(
    Q: Float[Tensor, " ... queries d_k"],
    K: Float[Tensor, " ... keys d_k"],
    V: Float[Tensor, " ... keys d_v"],
    mask: Bool[Tensor, " ... #queries #keys"] | None = None,
) -> Float[Tensor, " ... queries d_v"]:
    """Attention of `Q` on `K` and `V`; where `mask` is True a query may attend to a key."""
    # BEGIN SOLUTION
    from cs336_basics.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(Q, K, V, mask)
    # END SOLUTION


def run_linear(
    d_in: int, d_out: int, weights: Float[Tensor, " d_out d_in"], in_features: Float[Tensor, " ... d_in"]
) -> Float[Tensor, " ... d_out"]:
    """Your linear layer with these `weights`, applied to `in_features`.

    `functional_call(module, {name: tensor}, inputs)` calls a module with other weights than its own, and lets their
    gradients through; section 4 of the handout says more.
    """
    # BEGIN SOLUTION
    from cs336_basics.nn.linear import Linear

    return functional_call(Linear(d_in, d_out), {"weight": weights}, in_features)
    # END SOLUTION


def run_rope(
    d_k: int,
    theta: float,
    max_seq_len: int,
    in_query_or_key: Float[Tensor, " ... sequence d_k"],
    token_positions: Int[Tensor, " ... sequence"],
) -> Float[Tensor, " ... sequence d_k"]:
    """Rotary position embedding of `in_query_or_key` at `token_positions`."""
    # BEGIN SOLUTION
    from cs336_basics.nn.rope import RotaryPositionalEmbedding

    dtype = torch.promote_types(in_query_or_key.dtype, torch.float32)
    return RotaryPositionalEmbedding(theta, d_k, max_seq_len, dtype=dtype)(in_query_or_key, token_positions)
    # END SOLUTION


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_model d_model"],
    v_proj_weight: Float[Tensor, " d_model d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    in_features: Float[Tensor, " ... sequence d_model"],
) -> Float[Tensor, " ... sequence d_model"]:
    """Your causal multi-head self-attention with these weights and no position embedding.

    Rows [i · d_head, (i + 1) · d_head) of the query, key and value weights belong to head i.
    """
    # BEGIN SOLUTION
    from cs336_basics.nn.attention import CausalMultiHeadSelfAttention

    attention = CausalMultiHeadSelfAttention(d_model, num_heads)
    qkv_proj_weight = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight))
    weights = {"qkv_proj.weight": qkv_proj_weight, "output_proj.weight": o_proj_weight}
    return functional_call(attention, weights, in_features)
    # END SOLUTION


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_model d_model"],
    v_proj_weight: Float[Tensor, " d_model d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    in_features: Float[Tensor, " ... sequence d_model"],
    token_positions: Int[Tensor, " ... sequence"] | None = None,
) -> Float[Tensor, " ... sequence d_model"]:
    """The same with RoPE on the queries and keys of each head; positions count from 0 when they are not given."""
    # BEGIN SOLUTION
    from cs336_basics.nn.attention import CausalMultiHeadSelfAttention
    from cs336_basics.nn.rope import RotaryPositionalEmbedding

    dtype = torch.promote_types(in_features.dtype, torch.float32)
    rope = RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len, dtype=dtype)
    attention = CausalMultiHeadSelfAttention(d_model, num_heads, rope)
    qkv_proj_weight = torch.cat((q_proj_weight, k_proj_weight, v_proj_weight))
    weights = {"qkv_proj.weight": qkv_proj_weight, "output_proj.weight": o_proj_weight}
    return functional_call(attention, weights, (in_features, token_positions))
    # END SOLUTION


def run_scaled_dot_product_attention_module(
    Q: Float[Tensor, " ... queries d_k"],
    K: Float[Tensor, " ... keys d_k"],
    V: Float[Tensor, " ... keys d_v"],
    mask: Bool[Tensor, " ... #queries #keys"] | None,
    dropout: float,
    training: bool,
    seed: int,
) -> tuple[Float[Tensor, " ... queries d_v"], Float[Tensor, " ... queries keys"]]:
    """The output of your attention module, in training or not, and the weights that it was made with.

    `seed` decides which weights are dropped.
    """
    # BEGIN SOLUTION
    from cs336_basics.nn.attention_module import ScaledDotProductAttention

    torch.manual_seed(seed)
    return ScaledDotProductAttention(dropout).train(training)(Q, K, V, mask, return_weights=True)
    # END SOLUTION


def run_multihead_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_model d_model"],
    v_proj_weight: Float[Tensor, " d_model d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    query: Float[Tensor, " ... queries d_model"],
    key: Float[Tensor, " ... keys d_model"],
    value: Float[Tensor, " ... keys d_model"],
    mask: Bool[Tensor, " ..."] | None = None,
) -> Float[Tensor, " ... queries d_model"]:
    """Your multi-head attention of `query` on `key` and `value`, with these weights and no bias.

    `mask` is True where a query may attend to a key. With one dimension fewer than `query` it is a padding mask
    (batch, keys); with as many, it is (batch, queries, keys); with one more, (batch, heads, queries, keys).
    """
    # BEGIN SOLUTION
    from cs336_basics.nn.multihead_attention import MultiHeadAttention

    weights = {
        "q_proj.weight": q_proj_weight,
        "k_proj.weight": k_proj_weight,
        "v_proj.weight": v_proj_weight,
        "output_proj.weight": o_proj_weight,
    }
    return functional_call(MultiHeadAttention(d_model, num_heads), weights, (query, key, value, mask))
    # END SOLUTION


def run_blockwise_attention(
    Q: Float[Tensor, " ... queries d_k"],
    K: Float[Tensor, " ... keys d_k"],
    V: Float[Tensor, " ... keys d_v"],
    mask: Bool[Tensor, " ... #queries #keys"] | None = None,
    block_size: int | None = None,
) -> Float[Tensor, " ... queries d_v"]:
    """The same attention, computed in blocks of `block_size` queries and keys (None: you choose)."""
    # BEGIN SOLUTION
    from cs336_basics.nn.blockwise import blockwise_attention

    return blockwise_attention(Q, K, V, mask, block_size=block_size)
    # END SOLUTION


def run_decoding(
    d_model: int,
    num_heads: int,
    num_kv_heads: int,
    window: int | None,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_kv d_model"],
    v_proj_weight: Float[Tensor, " d_kv d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    in_features: Float[Tensor, " ... new d_model"],
    keys: Float[Tensor, " ... num_kv_heads past d_k"] | None = None,
    values: Float[Tensor, " ... num_kv_heads past d_k"] | None = None,
) -> tuple[
    Float[Tensor, " ... new d_model"],
    Float[Tensor, " ... num_kv_heads tokens d_k"],
    Float[Tensor, " ... num_kv_heads tokens d_k"],
]:
    """The answer to the tokens `in_features`, which follow those in the cache, and the longer cache: keys and values.

    `keys` and `values` are the cache as an earlier call returned it, or None if this is the first call.
    """
    # BEGIN SOLUTION
    from cs336_basics.nn.decoding import GroupedQueryAttention
    from cs336_basics.nn.rope import RotaryPositionalEmbedding

    dtype = torch.promote_types(in_features.dtype, torch.float32)
    rope = RotaryPositionalEmbedding(theta, d_model // num_heads, max_seq_len, dtype=dtype)
    attention = GroupedQueryAttention(d_model, num_heads, num_kv_heads, rope, window)
    weights = {
        "q_proj.weight": q_proj_weight,
        "k_proj.weight": k_proj_weight,
        "v_proj.weight": v_proj_weight,
        "output_proj.weight": o_proj_weight,
    }
    cache = None if keys is None or values is None else (keys, values)
    answer, cache = functional_call(attention, weights, (in_features, cache))
    return answer, *cache
    # END SOLUTION
