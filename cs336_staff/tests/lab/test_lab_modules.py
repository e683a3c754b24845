"""The modules that the lab gives to students: the same numbers as PyTorch's own, and what their docstrings promise."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import adapters
from cs336_basics.given.attention_classifier import AttentionClassifier
from cs336_basics.given.checkpointed import checkpointed_attention
from cs336_basics.given.relative_position_bias import RelativePositionBias, with_bias
from cs336_basics.given.self_attention_block import SelfAttentionBlock
from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_kit.lab.contenders import LINEAR, PYTORCH, chunked_attention, linear_attention, list_contenders

SEEDS = range(3)
QUERIES, KEYS = 5, 7
# All but PyTorch's own and the one that gives other numbers.
CONTENDERS = {
    name: attention
    for name, attention in list_contenders(adapters, compiled=False).items()
    if name not in (*PYTORCH, LINEAR)
}


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def inputs(seed: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Q, K, V and a mask that leaves every query its first key."""
    mask = torch.rand(2, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[..., 0] = True
    return (
        drawn(2, 3, QUERIES, 8, seed=seed, dtype=dtype),
        drawn(2, 3, KEYS, 8, seed=seed + 100, dtype=dtype),
        drawn(2, 3, KEYS, 6, seed=seed + 200, dtype=dtype),
        mask,
    )


def assert_same(answer: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    """Values within 1e-5 and gradients, for the same random gradient of the answer, within 1e-4."""
    torch.testing.assert_close(answer, expected, atol=1e-5, rtol=0)
    cotangent = drawn(*answer.shape, seed=300).detach()
    gradients, expected_gradients = (torch.autograd.grad(x, leaves, cotangent) for x in (answer, expected))
    torch.testing.assert_close(gradients, expected_gradients, atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CONTENDERS)
def test_every_implementation_gives_what_pytorch_gives(name: str, seed: int) -> None:
    Q, K, V, mask = inputs(seed)
    expected = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
    assert_same(CONTENDERS[name](Q, K, V, mask), expected, [Q, K, V])


@pytest.mark.parametrize("length", [1, 64, 150])
def test_linear_attention_is_a_sum_over_the_keys_so_far(length: int) -> None:
    Q, K, V = (drawn(2, length, 5, seed=seed) for seed in range(3))
    weights = ((F.elu(Q) + 1) @ (F.elu(K) + 1).mT).tril()
    assert_same(linear_attention(Q, K, V), weights / weights.sum(-1, keepdim=True) @ V, [Q, K, V])


def test_chunks_of_queries_with_their_weights() -> None:
    Q, K, V, mask = inputs(0)
    for visible in (None, mask, mask[..., :1, :]):
        output, weights = chunked_attention(
            Q, K, V, visible, chunk=2, return_weights=True, attention=scaled_dot_product_attention
        )
        torch.testing.assert_close(output, scaled_dot_product_attention(Q, K, V, visible))
        torch.testing.assert_close(weights @ V, output, atol=1e-6, rtol=0)


def test_a_stack_of_blocks() -> None:
    torch.manual_seed(0)
    classifier = AttentionClassifier(20, 3, d_model=8, num_heads=2, max_distance=4, num_layers=2)
    tokens, lengths = torch.randint(20, (1, 5)), torch.tensor([5])
    first, second = (block for block in classifier.blocks if isinstance(block, SelfAttentionBlock))
    x = classifier.embedding(tokens)
    weights = classifier.attention_weights(tokens, lengths)
    assert weights.shape == (1, 2, 2, 5, 5)
    torch.testing.assert_close(weights[:, 0], first.attention_weights(x))
    torch.testing.assert_close(weights[:, 1], second.attention_weights(first(x)))
    torch.testing.assert_close(classifier(tokens, lengths), classifier.logits(second(first(x)).mean(1)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bias_is_added_to_the_scores(seed: int) -> None:
    Q, K, V, mask = inputs(seed)
    bias = drawn(3, QUERIES, KEYS, seed=seed + 300)
    expected = F.scaled_dot_product_attention(Q, K, V, attn_mask=bias.masked_fill(~mask, -torch.inf))
    assert_same(scaled_dot_product_attention(*with_bias(Q, K, bias), V, mask), expected, [Q, K, V, bias])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_gives_what_pytorch_gives(seed: int) -> None:
    """`nn.MultiheadAttention` with the block's weights, after PyTorch's LayerNorm."""
    torch.manual_seed(seed)
    block = SelfAttentionBlock(12, 3)
    theirs = nn.MultiheadAttention(12, 3, bias=False, batch_first=True)
    with torch.no_grad():
        by_head = torch.stack([head.get_parameter("weight") for head in block.heads]).unflatten(1, (3, 4))
        theirs.in_proj_weight.copy_(by_head.transpose(0, 1).flatten(0, 2))
        theirs.out_proj.weight.copy_(block.output.weight)
    x = drawn(2, KEYS, 12, seed=seed)
    padding = torch.arange(KEYS) < torch.tensor([[7], [4]])
    normalised = F.layer_norm(x, (12,))
    expected, weights = theirs(
        normalised, normalised, normalised, key_padding_mask=~padding, average_attn_weights=False
    )
    parameters = [*(head.get_parameter("weight") for head in block.heads), block.output.weight]
    *by_head, of_output = torch.autograd.grad(block(x, padding[:, None]).sum(), parameters)
    their_weights = [theirs.in_proj_weight, theirs.out_proj.weight]
    gradients = [torch.stack(by_head).unflatten(1, (3, 4)).transpose(0, 1).flatten(0, 2), of_output]
    their_gradients = [*torch.autograd.grad(expected.sum(), their_weights, retain_graph=True)]
    torch.testing.assert_close(gradients, their_gradients, atol=1e-4, rtol=0)
    assert_same(block(x, padding[:, None]), x + expected, [x])
    torch.testing.assert_close(block.attention_weights(x, padding[:, None]), weights, atol=1e-5, rtol=0)


def test_the_bias_depends_on_the_clipped_distance() -> None:
    bias = RelativePositionBias(2, 2)
    assert not bias(3, 3).any()
    with torch.no_grad():
        bias.weight.copy_(torch.arange(10.0).reshape(2, 5))
    assert bias(2, 6)[0].tolist() == [[2, 3, 4, 4, 4, 4], [1, 2, 3, 4, 4, 4]]
    assert bias(4, 2)[1].tolist() == [[7, 8], [6, 7], [5, 6], [5, 5]]


def test_a_bias_changes_where_a_block_looks() -> None:
    """The first head looks one to the left alone, the second one to the right."""
    torch.manual_seed(0)
    bias = RelativePositionBias(2, 2)
    block = SelfAttentionBlock(8, 2, bias)
    with torch.no_grad():
        bias.weight[0, 1] = bias.weight[1, 3] = 50.0
    weights = block.attention_weights(drawn(1, 5, 8))[0].argmax(dim=-1)
    assert weights[0, 1:].tolist() == [0, 1, 2, 3]
    assert weights[1, :-1].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RelativePositionBias(2, -1), "expected a max_distance of 0 or more, got -1"),
        (lambda: SelfAttentionBlock(7, 2), "expected num_heads to divide d_model, got num_heads 2 and d_model 7"),
    ],
)
def test_sizes_that_do_not_fit(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_dropout_is_for_training_alone() -> None:
    torch.manual_seed(0)
    block, x = SelfAttentionBlock(8, 2, dropout=0.5), drawn(2, 5, 8)
    assert not torch.equal(block(x), block(x))
    dropped = (block(x) - x == 0).double().mean().item()
    assert 0.2 < dropped < 0.8
    block.eval()
    assert torch.equal(block(x), block(x))


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    classifier = AttentionClassifier(20, 3, d_model=8, num_heads=2, max_distance=4)
    tokens, lengths = torch.randint(20, (3, 9)), torch.tensor([9, 5, 1])
    padded = tokens.clone()
    padded[1, 5:] = padded[2, 1:] = 7
    logits = classifier(tokens, lengths)
    assert logits.shape == (3, 3)
    assert torch.equal(classifier(padded, lengths), logits)
    torch.testing.assert_close(classifier(tokens[1:2, :5], lengths[1:2]), logits[1:2])
    weights = classifier.attention_weights(tokens, lengths)
    assert weights.shape == (3, 1, 2, 9, 9)
    assert not weights[1, ..., 5:].any()
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    assert not classifier.attention_weights(tokens, lengths, causal)[0].triu(1).any()


def test_a_text_without_words_has_no_opinion() -> None:
    classifier = AttentionClassifier(20, 3, d_model=8, num_heads=2, max_distance=4)
    assert not classifier(torch.zeros(1, 2, dtype=torch.long), torch.tensor([0])).any()


def test_checkpointing_keeps_its_inputs_alone() -> None:
    Q, K, V, mask = inputs(0)

    def saved(attention) -> list[torch.Size]:
        shapes: list[torch.Size] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: shapes.append(x.shape), lambda x: x):
            attention(Q, K, V, mask)
        return shapes

    assert saved(scaled_dot_product_attention).count(torch.Size([2, 3, QUERIES, KEYS])) > 1
    assert saved(checkpointed_attention) == [x.shape for x in (Q, K, V, mask)]
