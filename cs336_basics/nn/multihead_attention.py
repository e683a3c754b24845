"""Multi-head attention of one sequence on another."""

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cs336_basics.nn.attention_module import ScaledDotProductAttention
from cs336_basics.nn.linear import Linear


class MultiHeadAttention(nn.Module):
    r"""W_O · concat(head_1, ..., head_h), where head_i = attention(W_Qi query, W_Ki key, W_Vi value).

    Rows [i · d_head, (i + 1) · d_head) of W_Q, W_K and W_V belong to head i, with d_head = d_model / num_heads. The
    heads are an axis of their own from the projections to W_O: each einsum writes its axes in the order in which the
    next step wants them, so that nothing is transposed.

    Args:
        d_model: length of the input and output vectors.
        num_heads: number of heads.
        dropout: the probability with which a weight is dropped in training.
        bias: add a learned vector to each of the queries, keys, values and output.

    Raises:
        ValueError: `d_model` is not a multiple of `num_heads`, or `dropout` is negative or not below 1.

    Source:
        Vaswani et al., Attention Is All You Need (2017), sections 3.2.2 and 3.2.3.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0, bias: bool = False) -> None:
        super().__init__()
        # BEGIN SOLUTION
        if d_model % num_heads:
            raise ValueError(f"expected d_model to be a multiple of num_heads, got {d_model} and {num_heads}")
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.output_proj = (Linear(d_model, d_model) for _ in range(4))
        # One row each for the queries, keys, values and output.
        self.biases = nn.Parameter(torch.zeros(4, d_model)) if bias else None
        self.attention = ScaledDotProductAttention(dropout)
        # END SOLUTION

    def forward(
        self,
        query: Float[Tensor, "*batch queries d_model"],
        key: Float[Tensor, "*batch keys d_model"],
        value: Float[Tensor, "*batch keys d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        *,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from each position of `query` to the positions of `key`, and average `value`.

        Args:
            query: the sequence that attends.
            key: the sequence that is attended to; pass `query` for self-attention.
            value: the vectors that are averaged, one for each key; usually the same as `key`.
            mask: True where a query may attend to a key. Its number of dimensions says which kind it is: one fewer than
                `query` for a padding mask (batch, keys), as many for (batch, queries, keys), the same for all heads, or
                one more for (batch, heads, queries, keys). Sizes may be 1, which stands for all.
            return_weights: also return the weights of every head.

        Returns:
            The output (batch, queries, d_model); or a tuple of it and the weights (batch, heads, queries, keys), after
            dropout. A query that may attend to nothing gets the bias of the output, or zeros without one.

        Raises:
            ValueError: the mask has another number of dimensions, or its sizes do not fit.
        """
        # BEGIN SOLUTION
        bias_q, bias_k, bias_v, bias_o = (None,) * 4 if self.biases is None else self.biases
        Q = self._heads(query, self.q_proj, bias_q)
        K = self._heads(key, self.k_proj, bias_k)
        V = self._heads(value, self.v_proj, bias_v)
        heads, weights = self.attention(Q, K, V, _for_heads(mask, Q, K), return_weights=True)
        weight = rearrange(self.output_proj.weight, "d_model (head d_head) -> d_model head d_head", head=self.num_heads)
        output = einsum(heads, weight, "... head queries d_head, d_model head d_head -> ... queries d_model")
        output = output if bias_o is None else output + bias_o
        return (output, weights) if return_weights else output
        # END SOLUTION

    # BEGIN SOLUTION
    def _heads(
        self, x: Float[Tensor, "... sequence d_model"], projection: Linear, bias: Float[Tensor, " d_model"] | None
    ) -> Float[Tensor, "... head sequence d_head"]:
        weight = rearrange(projection.weight, "(head d_head) d_model -> head d_head d_model", head=self.num_heads)
        heads = einsum(x, weight, "... sequence d_model, head d_head d_model -> ... head sequence d_head")
        return heads if bias is None else heads + rearrange(bias, "(head d) -> head 1 d", head=self.num_heads)

    # END SOLUTION


# BEGIN SOLUTION
def _for_heads(mask: Tensor | None, Q: Tensor, K: Tensor) -> Tensor | None:
    """Reshape the mask to (..., heads, queries, keys), where a size may be 1."""
    if mask is None:
        return None
    shape = (*Q.shape[:-1], K.shape[-2])
    match len(shape) - mask.ndim:
        case 2:
            full = rearrange(mask, "... keys -> ... 1 1 keys")
        case 1:
            full = rearrange(mask, "... queries keys -> ... 1 queries keys")
        case _:
            full = mask
    if full.ndim != len(shape) or any(size not in (1, whole) for size, whole in zip(full.shape, shape, strict=True)):
        *batch, heads, queries, keys = shape
        expected = ", ".join(str((*batch, *sizes)) for sizes in ((keys,), (queries, keys), (heads, queries, keys)))
        raise ValueError(f"expected a mask of shape {expected}, or with 1 for a size, got {tuple(mask.shape)}")
    return full


# END SOLUTION
