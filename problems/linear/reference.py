"""The linear layer."""

from torch import Tensor


# 4 Linear layer
def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    x = in_features  #: the input
    W = weights  #: the weights
    transposed = W.mT  #: the weights of {}, transposed
    return x @ transposed  #: the answer. Which axis of the weights belongs to the input?


def apply_linear(x: Tensor, W: Tensor) -> Tensor:
    """Call the linear layer, as later problems do."""
    return run_linear(W.shape[1], W.shape[0], W, x)


# 6 Multi-head self-attention
def project(x: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Compute the queries, the keys or the values of each head."""
    #: the weights of {}, head by head. Which rows of the weights belong to head i?
    weights = weight.unflatten(0, (heads, -1))
    flat = apply_linear(x, weight)  #: {}. Which weights make the queries, the keys and the values?
    #: Which rows of the weights belong to head i?
    split = flat.unflatten(-1, (heads, -1))  #: {} of each position, split into heads
    by_head = split.transpose(-2, -3)  #: {} of each head
    return by_head


def join(answers: Tensor, weight: Tensor) -> Tensor:
    """Join the answers of the heads, and project them."""
    #: the heads' answers, position by position. Which rows of the weights belong to head i?
    by_position = answers.transpose(-2, -3)
    #: the columns of W_O for each head, transposed. Which columns of W_O belong to head i?
    columns = weight.unflatten(-1, (answers.shape[-3], -1)).movedim(-2, 0).mT
    shares = answers @ columns  #: the heads' shares of the answer. What mixes the heads at the end?
    sums = shares.cumsum(-3)  #: the sums of the heads' shares, up to each
    joined = by_position.flatten(-2)  #: the heads side by side. Which rows of the weights belong to head i?
    return apply_linear(joined, weight)
