"""Mask objects say, block by block, what the boolean matrix that they stand for says."""

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cs336_kit.lab.blockwise.masks import Mask, Visibility, as_mask, causal, document, padding, window

LENGTH = 23
POSITION = torch.arange(LENGTH)
DISTANCE = POSITION[:, None] - POSITION
IDS = torch.tensor([3] * 5 + [1] * 9 + [3] * 2 + [7] * 7)
RANDOM = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) < 0.3
RANDOM[:8, 8:16] = True
RANDOM[8:, :8] = False

MASKS = {
    "causal": (causal, DISTANCE >= 0),
    "window": (window(4), DISTANCE.abs() < 4),
    "window of one": (window(1), DISTANCE == 0),
    "padding": (padding(torch.tensor(9)), (POSITION < 9).expand(LENGTH, LENGTH)),
    "nothing but padding": (padding(torch.tensor(0)), torch.zeros(LENGTH, LENGTH, dtype=torch.bool)),
    "document": (document(IDS), IDS[:, None] == IDS),
    "tensor": (as_mask(RANDOM), RANDOM),
    "tensor, one row for all": (as_mask(RANDOM[:1]), RANDOM[:1].expand(LENGTH, LENGTH)),
    "tensor, one column for all": (as_mask(RANDOM[:, :1]), RANDOM[:, :1].expand(LENGTH, LENGTH)),
    "tensor, one value for all": (as_mask(torch.ones(1, 1).bool()), torch.ones(LENGTH, LENGTH).bool()),
    "transposed tensor": (as_mask(RANDOM.T), RANDOM.T),
    "causal & window": (causal & window(6), (DISTANCE >= 0) & (DISTANCE < 6)),
    "window | tensor": (window(2) | RANDOM, (DISTANCE.abs() < 2) | RANDOM),
    "tensor & causal": (RANDOM & causal, RANDOM & (DISTANCE >= 0)),
    "tensor | padding": (RANDOM | padding(torch.tensor(3)), RANDOM | (POSITION < 3)),
    "all of them": (
        causal & document(IDS) | window(3) & padding(torch.tensor(20)),
        (DISTANCE >= 0) & (IDS[:, None] == IDS) | (DISTANCE.abs() < 3) & (POSITION < 20),
    ),
}
spans = st.tuples(st.integers(0, LENGTH), st.integers(0, LENGTH)).filter(lambda ends: ends[0] < ends[1])


@pytest.mark.parametrize("name", MASKS)
@settings(deadline=None, derandomize=True)
@given(rows=spans, columns=spans)
def test_a_block_is_the_block_of_the_matrix(name: str, rows: tuple[int, int], columns: tuple[int, int]) -> None:
    mask, matrix = MASKS[name]
    block = matrix[slice(*rows), slice(*columns)]
    one = mask.matrix(())
    tile = one.tile(slice(*rows), slice(*columns), block.device)
    assert torch.equal(tile.expand(block.shape), block)
    visibility = one.visibility(slice(*rows), slice(*columns))
    assert visibility is not Visibility.ALL or block.all()
    assert visibility is not Visibility.NOTHING or not block.any()


@pytest.mark.parametrize("name", ["causal", "window", "padding", "document", "tensor", "transposed tensor"])
@settings(deadline=None, derandomize=True)
@given(rows=spans, columns=spans)
def test_a_simple_mask_finds_every_block_that_is_all_or_nothing(
    name: str, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    mask, matrix = MASKS[name]
    block = matrix[slice(*rows), slice(*columns)]
    expected = Visibility.ALL if block.all() else Visibility.SOME if block.any() else Visibility.NOTHING
    assert mask.matrix(()).visibility(slice(*rows), slice(*columns)) is expected


def test_batch_dimensions_broadcast() -> None:
    lengths, ids = torch.tensor([[2], [5]]), torch.stack((IDS, IDS.flip(0), IDS * 0))
    mask = padding(lengths) & document(ids) & RANDOM.expand(1, 1, LENGTH, LENGTH)
    assert mask.shape == (2, 3, LENGTH, LENGTH)
    everything = slice(0, LENGTH)
    for index in [(0, 0), (0, 2), (1, 1)]:
        padded = lengths[index[0], 0]
        expected = (padded > POSITION) & (ids[index[1], :, None] == ids[index[1]]) & RANDOM
        assert torch.equal(mask.matrix(index).tile(everything, everything, RANDOM.device), expected)


def test_a_tensor_that_is_changed_is_seen_as_it_is_then() -> None:
    values = torch.zeros(4, 4, dtype=torch.bool)
    mask, block = as_mask(values), slice(0, 4)
    assert mask.matrix(()).visibility(block, block) is Visibility.NOTHING
    values.fill_(True)
    assert mask.matrix(()).visibility(block, block) is Visibility.ALL


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: window(0), ValueError, "expected a window of at least 1 position, got 0"),
        (lambda: padding(torch.ones(2)), TypeError, "expected whole numbers of keys, got torch.float32"),
        (lambda: padding(torch.ones(2).bool()), TypeError, "a boolean mask needs no padding"),
        (lambda: document(torch.tensor(1)), ValueError, r"expected ids of the shape \(..., sequence\)"),
        (lambda: as_mask(torch.ones(2, 2)), TypeError, "expected a boolean mask .* got torch.float32"),
        (lambda: operator.and_(causal, "window"), TypeError, "or one of masks.py, got str"),
        (lambda: torch.ones(2, 2) | causal, TypeError, "got torch.float32"),
    ],
)
def test_what_is_no_mask_is_refused(build, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def test_both_of_a_mask_and_a_tensor_are_masks() -> None:
    assert isinstance(RANDOM & causal, Mask)
    assert isinstance(causal | RANDOM, Mask)
