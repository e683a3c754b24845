"""The block that students are given: PyTorch's own numbers, and what its docstring promises."""

import torch
from torch import nn
from torch.nn import functional as F

from cs336_basics.given.self_attention_block import SelfAttentionBlock


def test_it_gives_what_pytorch_gives() -> None:
    """`nn.MultiheadAttention` with the block's weights, after PyTorch's LayerNorm; its gradients, too."""
    torch.manual_seed(0)
    block = SelfAttentionBlock(12, 3)
    theirs = nn.MultiheadAttention(12, 3, bias=False, batch_first=True)
    with torch.no_grad():
        by_head = torch.stack([head.get_parameter("weight") for head in block.heads]).unflatten(1, (3, 4))
        theirs.in_proj_weight.copy_(by_head.transpose(0, 1).flatten(0, 2))
        theirs.out_proj.weight.copy_(block.output.weight)
    x = torch.randn(2, 7, 12, requires_grad=True)
    normalised = F.layer_norm(x, (12,))
    expected, weights = theirs(normalised, normalised, normalised, average_attn_weights=False)
    torch.testing.assert_close(block(x), x + expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(block.attention_weights(x), weights, atol=1e-5, rtol=0)
    cotangent = torch.randn(2, 7, 12)
    gradients = (torch.autograd.grad((y * cotangent).sum(), x)[0] for y in (block(x), x + expected))
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=0)
