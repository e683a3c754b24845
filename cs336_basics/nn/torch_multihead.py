"""Copy weights from PyTorch's own multi-head attention, and back."""

import torch
from torch import nn

from cs336_basics.nn.linear import Linear
from cs336_basics.nn.multihead_attention import MultiHeadAttention


def from_torch(theirs: nn.MultiheadAttention) -> MultiHeadAttention:
    """Make a module with a copy of the weights of `theirs`, which gives the same numbers.

    A mask of `theirs` is True where a key is *hidden*, one of the result where a query may attend to it.

    Raises:
        ValueError: the keys or values of `theirs` have another width than its queries, or it adds keys of its own.
    """
    # BEGIN SOLUTION
    if theirs.in_proj_weight is None or theirs.bias_k is not None or theirs.add_zero_attn:
        raise ValueError("expected a torch.nn.MultiheadAttention without kdim, vdim, add_bias_kv and add_zero_attn")
    bias = theirs.in_proj_bias is not None
    ours = MultiHeadAttention(theirs.embed_dim, theirs.num_heads, theirs.dropout, bias).to(theirs.in_proj_weight)
    with torch.no_grad():
        weights = (*theirs.in_proj_weight.chunk(3), theirs.out_proj.weight)
        for projection, weight in zip(_projections(ours), weights, strict=True):
            projection.weight.copy_(weight)
        if ours.biases is not None:
            ours.biases.copy_(torch.cat((theirs.in_proj_bias, theirs.out_proj.bias)).view_as(ours.biases))
    return ours.train(theirs.training)
    # END SOLUTION


def to_torch(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """Make PyTorch's own module with a copy of the weights of `ours`; its first dimension is the batch."""
    # BEGIN SOLUTION
    q, k, v, output = (projection.weight for projection in _projections(ours))
    theirs = nn.MultiheadAttention(
        output.shape[0], ours.num_heads, ours.attention.dropout, bias=ours.biases is not None, batch_first=True
    )
    state = {"in_proj_weight": torch.cat((q, k, v)), "out_proj.weight": output}
    if ours.biases is not None:
        state |= {"in_proj_bias": ours.biases[:3].flatten(), "out_proj.bias": ours.biases[3]}
    theirs.to(output).load_state_dict(state)
    return theirs.train(ours.training)
    # END SOLUTION


# BEGIN SOLUTION
def _projections(ours: MultiHeadAttention) -> tuple[Linear, Linear, Linear, Linear]:
    return ours.q_proj, ours.k_proj, ours.v_proj, ours.output_proj


# END SOLUTION
