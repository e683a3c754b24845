"""Attention that keeps only its inputs for the backward pass, and computes the rest again."""

from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cs336_basics.nn.functional import scaled_dot_product_attention


def checkpointed_attention(
    Q: Float[Tensor, "... queries d_k"],
    K: Float[Tensor, "... keys d_k"],
    V: Float[Tensor, "... keys d_v"],
    mask: Bool[Tensor, "... #queries #keys"] | None = None,
) -> Float[Tensor, "... queries d_v"]:
    r"""softmax(Q Kᵀ / √d_k) V with the same gradients, for time instead of memory.

    Between the forward and the backward pass, attention keeps several queries × keys matrices. In a model of many
    layers all layers keep theirs at once, and they are what fills the memory. This one keeps `Q`, `K`, `V` and `mask`,
    and runs the forward pass of one layer again when its gradients are asked for.

    Args, Returns, Raises: as in `scaled_dot_product_attention`.

    Source:
        Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).
    """
    return checkpoint(scaled_dot_product_attention, Q, K, V, mask, use_reentrant=False)
