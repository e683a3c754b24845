"""Softmax, scaled dot-product attention and rotary position embedding, as pure functions over einsum.

Every function works on any number of leading, batch-like dimensions, modifies none of its arguments and is
differentiable. float16 and bfloat16 are computed in float32 and returned in their own dtype.
"""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_basics.given.checks import check_attention_arguments


def softmax(x: Float[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    r"""Turn logits into probabilities along one dimension: exp(x_i - m) / Σ_j exp(x_j - m), where m = max_j x_j.

    Subtracting the maximum changes nothing in exact arithmetic and keeps exp from overflowing.

    Args:
        x: floating-point logits with any number of dimensions.
        dim: the dimension that is normalised, negative or not.

    Returns:
        A tensor of the shape and dtype of `x` whose slices along `dim` sum to 1. A slice that is all -inf has
        nothing to normalise: it gives zeros, with zero gradients. +inf and NaN give NaN in their slice.

    Raises:
        IndexError: `dim` is not a dimension of `x`.

    Source:
        Goodfellow, Bengio and Courville, Deep Learning (2016), section 4.1.
    """
    # BEGIN SOLUTION
    logits = at_least_float32(x)
    if logits.size(dim) == 0:  # amax refuses an empty dimension, and there is nothing to normalise
        return x.clone()
    maximum = logits.detach().amax(dim, keepdim=True)
    maximum = maximum.masked_fill(maximum == -math.inf, 0.0)  # -inf - -inf would be NaN
    exponentials = torch.exp(logits - maximum)
    total = exponentials.sum(dim, keepdim=True)
    total = total.masked_fill(total == 0.0, 1.0)
    return (exponentials / total).to(x.dtype)
    # END SOLUTION


def attention_scores(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
) -> Float[Tensor, "... queries keys"]:
    r"""Compute what softmax turns into weights: Q Kᵀ / √d_k, and -inf where `mask` is False.

    Args:
        Q: queries.
        K: keys. The batch-like dimensions of `Q`, `K` and `mask` broadcast against each other.
        mask: True where a query may attend to a key; None lets every query attend to every key.

    Returns:
        Scores in the dtype of `Q`; in float32 if that is half precision, since scores may be larger than float16 holds.

    Raises:
        TypeError: the mask is not boolean, or the dtypes of `Q` and `K` differ.
        ValueError: the shapes do not fit, or the tensors are on different devices.

    Source:
        Vaswani et al., Attention Is All You Need (2017), section 3.2.1.
    """
    # BEGIN SOLUTION
    check_attention_arguments(Q, K, mask=mask)
    queries, keys = at_least_float32(Q), at_least_float32(K)
    scores = einsum(queries, keys, "... queries d_k, ... keys d_k -> ... queries keys") / math.sqrt(Q.shape[-1])
    return scores if mask is None else torch.where(mask, scores, -math.inf)
    # END SOLUTION


def attention_weights(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
) -> Float[Tensor, "... queries keys"]:
    r"""Compute how much each query attends to each key: softmax(Q Kᵀ / √d_k), over the keys.

    Args:
        Q: queries.
        K: keys. The batch-like dimensions of `Q`, `K` and `mask` broadcast against each other.
        mask: True where a query may attend to a key; None lets every query attend to every key.

    Returns:
        Probabilities in the dtype of `Q`: each row sums to 1 over the keys where `mask` is True and is exactly 0
        where it is False. A row with no True is all zeros.

    Raises:
        TypeError: the mask is not boolean, or the dtypes of `Q` and `K` differ.
        ValueError: the shapes do not fit, or the tensors are on different devices.

    Source:
        Vaswani et al., Attention Is All You Need (2017), section 3.2.1.
    """
    # BEGIN SOLUTION
    scores = attention_scores(Q, K, mask)
    return softmax(scores, dim=-1).to(Q.dtype)
    # END SOLUTION


def scaled_dot_product_attention(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
) -> Float[Tensor, "... queries d_v"]:
    r"""For each query, the average of the values weighted by attention: softmax(Q Kᵀ / √d_k) V.

    Args:
        Q: queries.
        K: keys.
        V: values, one for each key. The batch-like dimensions of `Q`, `K`, `V` and `mask` broadcast against each
            other, so that one key/value head can serve many query heads.
        mask: True where a query may attend to a key; None lets every query attend to every key.

    Returns:
        One vector of length d_v for each query, in the dtype of `Q`. A query that may attend to nothing gets
        zeros, and so does every query when there are no keys.

    Raises:
        TypeError: the mask is not boolean, or the dtypes of `Q`, `K` and `V` differ.
        ValueError: the shapes do not fit, or the tensors are on different devices.

    Source:
        Vaswani et al., Attention Is All You Need (2017), equation 1.
    """
    # BEGIN SOLUTION
    check_attention_arguments(Q, K, V, mask)
    weights = attention_weights(at_least_float32(Q), at_least_float32(K), mask)
    return weighted_values(weights, V)
    # END SOLUTION


# BEGIN SOLUTION
def weighted_values(weights: Tensor, V: Tensor) -> Tensor:
    """For each query, the sum of the values times its weights, in the dtype of `V`.

    Weights that were not rounded to half precision are more accurate; the sum is taken in float32 at least.
    """
    return einsum(weights, at_least_float32(V), "... queries keys, ... keys d_v -> ... queries d_v").to(V.dtype)


# END SOLUTION


def rotary_position_embedding(
    x: Float[Tensor, "... sequence d_k"],
    cos: Float[Tensor, "... sequence d_k/2"],
    sin: Float[Tensor, "... sequence d_k/2"],
) -> Float[Tensor, "... sequence d_k"]:
    r"""Rotate each pair (x_2i, x_2i+1) of a vector by the angle of its position.

    (x_2i, x_2i+1) becomes (x_2i cos - x_2i+1 sin, x_2i sin + x_2i+1 cos).

    Args:
        x: queries or keys, with an even last dimension.
        cos: cosines of the angles, one for each position and pair. Batch-like dimensions broadcast against `x`.
        sin: sines of the same angles.

    Returns:
        A tensor of the shape and dtype of `x`; every vector keeps its length.

    Source:
        Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding (2021), section 3.4.2.
    """
    # BEGIN SOLUTION
    even, odd = rearrange(x, "... (pair two) -> two ... pair", two=2)
    rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return rearrange(rotated, "... pair two -> ... (pair two)").to(x.dtype)
    # END SOLUTION


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision widened to float32: sums of float16 overflow, and sums of bfloat16 lose most of their digits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
