"""What the examination says of blockwise attention."""

import math
from functools import partial

import pytest
import torch

from cs336_kit.examination.blockwise import examine_blockwise
from cs336_staff.authoring import parts
from cs336_staff.authoring.misconceptions.blockwise import absorb_with_nan, from_the_start, kept
from cs336_staff.release.verify import submission

ADAPTER = "run_blockwise_attention"


def ids(run) -> list[str]:
    return [found.id for found in examine_blockwise(run)]


def test_the_numbers_are_those_of_this_function():
    (found,) = examine_blockwise(submission("blockwise-nothing-rescaled")[ADAPTER])
    assert found.measured == (
        "Of two blocks with the scores (0, -1) and (3, 3) the first gets the weight 0.4062 and the second 0.5938; in "
        "one block you give them 0.03293 and 0.9671."
    )
    (found,) = examine_blockwise(submission("blockwise-own-block-only")[ADAPTER])
    assert found.measured == (
        "With 4 queries, 11 keys, no mask and block_size=3, query 0 gives weight to the keys 0 to 2 and query 3 gives "
        "weight to the keys 3 to 5; every query should give some to all 11."
    )


def whole_matrix(Q, K, V, mask=None, block_size=None):
    return parts.attention(Q, K, V, mask)


def test_a_matrix_that_is_held_is_found():
    (found,) = (f for f in examine_blockwise(whole_matrix) if f.id == "blockwise-holds-matrix")
    assert "makes a tensor of 4,200 numbers; one block has 64 scores," in found.measured


def unscaled(Q, K):
    return Q @ K.mT


RESCALING = {
    "blockwise-sum-not-rescaled": {"absorb": partial(parts.absorb, shrink_total=kept)},
    "blockwise-values-not-rescaled": {"absorb": partial(parts.absorb, shrink_sum=kept)},
    "blockwise-hidden-block-nan": {"absorb": absorb_with_nan},
}
OTHERS = {
    "attention-scale-missing": {"score": unscaled},
    "attention-mask-inverted": {"hide": lambda scores, tile: scores.masked_fill(tile, -math.inf)},
    "attention-mask-fill-finite": {"hide": lambda scores, tile: scores.masked_fill(~tile, -1e4)},
    "blockwise-mask-of-first-keys": {
        "tile": lambda mask, rows, columns, queries, keys: parts.tile(
            mask, rows, from_the_start(columns), queries, keys
        )
    },
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("rescaling", RESCALING)
def test_two_mistakes_are_both_found(rescaling, other):
    if rescaling == "blockwise-hidden-block-nan" and other in (
        "attention-mask-fill-finite",
        "blockwise-mask-of-first-keys",
    ):
        pytest.skip("no block is hidden then, or another one")
    run = partial(parts.blockwise, **RESCALING[rescaling], **OTHERS[other])
    assert {rescaling, other} <= set(ids(run))


def test_blocks_that_change_something_else_are_found():
    def run(Q, K, V, mask=None, block_size=None):
        answer = parts.blockwise(Q, K, V, mask, block_size)
        return answer * 0.9 if block_size == 3 else answer

    (found,) = (f for f in examine_blockwise(run) if f.id == "blockwise-blocks-differ")
    assert found.measured.startswith("With block_size=3 your weights differ by up to 0.1 from those in one block")
    assert torch.is_tensor(run(*(torch.ones(2, 2) for _ in range(3))))
