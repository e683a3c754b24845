"""Docstrings in cs336_basics/nn/ and given/ promise more than is asked of students: these tests hold them to it."""

import math
from collections.abc import Callable
from operator import attrgetter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cs336_basics.given.self_attention_block import SelfAttentionBlock
from cs336_basics.nn.attention import CausalMultiHeadSelfAttention
from cs336_basics.nn.attention_module import ScaledDotProductAttention
from cs336_basics.nn.decoding import GroupedQueryAttention
from cs336_basics.nn.linear import Linear
from cs336_basics.nn.multihead_attention import MultiHeadAttention
from cs336_basics.nn.rope import RotaryPositionalEmbedding
from staff.tests.solution.conftest import drawn

ROPE = RotaryPositionalEmbedding(100.0, 2, 20)
DIVIDE = "expected num_kv_heads to divide num_heads, and num_heads to divide d_model, got "


def test_linear_starts_from_a_cut_normal_distribution() -> None:
    torch.manual_seed(0)
    weight = Linear(300, 500).weight.detach()
    sigma = math.sqrt(2 / 800)
    assert weight.shape == (500, 300)
    # A normal distribution cut at ±3σ has a standard deviation of 0.98658 σ; 150,000 draws know it to 0.2 %.
    assert float(weight.std()) == pytest.approx(0.98658 * sigma, rel=0.01)
    assert abs(float(weight.mean())) < 0.01 * sigma
    assert 2.9 * sigma < float(weight.abs().max()) <= 3 * sigma


@pytest.mark.parametrize(
    ("make", "sizes", "shapes"),
    [
        (Linear, (3, 5), {"weight": (5, 3)}),
        (RotaryPositionalEmbedding, (10000.0, 6, 10), {"cos": (10, 3), "sin": (10, 3)}),
        (CausalMultiHeadSelfAttention, (4, 2), {"qkv_proj.weight": (12, 4), "output_proj.weight": (4, 4)}),
    ],
)
def test_parameters_of_a_module(make: Callable[..., nn.Module], sizes: tuple, shapes: dict[str, tuple]) -> None:
    module = make(*sizes, device="meta", dtype=torch.bfloat16)
    made = {name: attrgetter(name)(module) for name in shapes}
    expected = {name: (shape, torch.bfloat16, "meta") for name, shape in shapes.items()}
    assert {name: (x.shape, x.dtype, x.device.type) for name, x in made.items()} == expected
    assert {*dict(module.named_parameters()), *module.state_dict()} <= shapes.keys()


def test_multihead_attention_works_on_the_device_of_its_input() -> None:
    attention = CausalMultiHeadSelfAttention(4, 2, device="meta", dtype=torch.bfloat16)
    assert attention(torch.zeros(2, 3, 4, device="meta", dtype=torch.bfloat16)).device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rope_in_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    rope, x, positions = RotaryPositionalEmbedding(1e4, 8, 1000), drawn(3, 8, dtype=dtype), torch.tensor([0, 9, 999])
    assert torch.equal(rope(x, positions), rope(x.float(), positions).to(dtype))


def test_rope_tables_are_not_saved_and_exact_at_large_positions() -> None:
    rope = RotaryPositionalEmbedding(10000.0, 6, 100_001)
    assert rope.state_dict() == {}
    for pair in range(3):
        angle = 100_000 * 10000 ** (-2 * pair / 6)
        assert float(rope.cos[100_000, pair]) == pytest.approx(math.cos(angle), abs=1e-7)
        assert float(rope.sin[100_000, pair]) == pytest.approx(math.sin(angle), abs=1e-7)


@pytest.mark.parametrize(("positions", "came"), [([0, 10], "0 to 10"), ([-1, 3], "-1 to 3"), ([10], "10 to 10")])
def test_rope_refuses_positions_outside_the_table(positions: list[int], came: str) -> None:
    with pytest.raises(ValueError, match=rf"from 0 to max_seq_len - 1 = 9, got positions from {came}"):
        RotaryPositionalEmbedding(10000.0, 4, 10)(drawn(len(positions), 4), torch.tensor(positions))


def test_the_causal_mask_is_built_once_for_the_longest_sequence() -> None:
    attention = CausalMultiHeadSelfAttention(4, 2)
    attention(drawn(7, 4, dtype=torch.float32))
    mask = attention.causal_mask
    attention(drawn(2, 3, 4, dtype=torch.float32))
    attention(drawn(7, 4, dtype=torch.float32))
    assert attention.causal_mask is mask
    attention(drawn(8, 4, dtype=torch.float32))
    assert attention.causal_mask.shape == (8, 8)


@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4), (0, 3, 4), (1, 4)])
def test_empty_and_single_sequences(shape: tuple[int, ...]) -> None:
    attention = CausalMultiHeadSelfAttention(4, 2, RotaryPositionalEmbedding(10000.0, 2, 5))
    assert attention(drawn(*shape, dtype=torch.float32)).shape == shape


def test_the_block_that_students_are_given_gives_what_pytorch_gives() -> None:
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


def test_decoding_follows_another_device() -> None:
    attention, x = GroupedQueryAttention(12, 6, 2, ROPE, window=2), torch.ones(3, 12)
    with torch.device("meta"):  # modules without a device of their own go there
        answer, _ = attention(x)
    assert answer.device.type == "cpu"


def test_the_cache_grows_by_one_row_of_the_heads_that_are_shared() -> None:
    """Nothing larger stays behind the tensors that are returned."""
    attention, x = GroupedQueryAttention(12, 6, 2, ROPE), torch.ones(1, 12)
    _, cache = attention(x)
    for tokens in range(2, 6):
        _, cache = attention(x, cache)
        for kept in cache:
            assert kept.shape == (2, tokens, 2)
            assert kept.untyped_storage().nbytes() == 4 * 2 * tokens * 2


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (RotaryPositionalEmbedding, (10000.0, 5, 10), "even d_k, since RoPE rotates pairs, got 5"),
        (CausalMultiHeadSelfAttention, (10, 3), "multiple of num_heads, got 10 and 3"),
        (MultiHeadAttention, (10, 3), "multiple of num_heads, got 10 and 3"),
        (SelfAttentionBlock, (7, 2), "expected num_heads to divide d_model, got num_heads 2 and d_model 7"),
        (ScaledDotProductAttention, (-0.1,), "dropout of at least 0 and below 1, got -0.1"),
        (ScaledDotProductAttention, (1.0,), "dropout of at least 0 and below 1, got 1.0"),
        (ScaledDotProductAttention, (math.nan,), "dropout of at least 0 and below 1, got nan"),
        (GroupedQueryAttention, (12, 5, 1, ROPE), f"^{DIVIDE}1, 5 and 12$"),
        (GroupedQueryAttention, (12, 6, 4, ROPE), f"^{DIVIDE}4, 6 and 12$"),
        (GroupedQueryAttention, (12, 6, 2, ROPE, 0), "^expected a window of 1 or more, or None, got 0$"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make: Callable[..., nn.Module], arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(*arguments)
