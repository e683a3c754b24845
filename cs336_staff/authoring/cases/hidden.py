"""The hidden cases: the same kinds as the public ones, of other sizes."""

import torch

from cs336_staff.authoring.cases.draws import (
    FULL_PRECISION,
    HALF_PRECISION,
    attention,
    attention_module,
    blockwise,
    linear,
    multihead,
    multihead_attention,
    rope,
    softmax,
)
from cs336_staff.authoring.cases.spec import CaseSpec, specs

HIDDEN: list[CaseSpec] = [
    *specs(
        "softmax",
        "run_softmax",
        {
            "1d": softmax(11, dim=-1),
            "one-logit": softmax(3, 1, dim=-1),
            "2d-first-dim": softmax(7, 3, dim=-2),
            "3d-first-dim": softmax(3, 7, 5, dim=-3),
            "3d-middle-dim": softmax(3, 7, 5, dim=-2),
            "4d-third-dim": softmax(2, 5, 3, 7, dim=2),
            "5d-second-dim": softmax(2, 3, 2, 5, 3, dim=1),
            "square": softmax(6, 6, 6, dim=0),
            "large-logits": softmax(5, 7, dim=0, scale=3e4),
            "slices-far-apart": softmax(5, 7, dim=0, shift=1000.0),
            "some-minus-infinity": softmax(5, 13, dim=0, hidden=0.6),
        },
    ),
    *specs(
        "softmax-half-precision",
        "run_softmax",
        {name: softmax(211, 3, dim=0, scale=2.0, dtype=dtype) for name, dtype in HALF_PRECISION.items()},
    ),
    *specs(
        "softmax-last-digit",
        "run_softmax",
        {name: softmax(5, 7, dim=0, dtype=dtype) for name, dtype in FULL_PRECISION.items()},
    ),
    *specs(
        "softmax-gradients",
        "run_softmax",
        {"first-dim": softmax(5, 3, 7, dim=0), "last-dim": softmax(3, 5, dim=-1)},
        gradients=("in_features",),
    ),
    *specs(
        "attention",
        "run_scaled_dot_product_attention",
        {
            "3d-no-mask": attention(3, queries=7, keys=11, d_k=5, d_v=2),
            "3d-causal": attention(3, queries=11, keys=11, d_k=5, mask="causal"),
            "3d-random-mask": attention(3, queries=11, keys=13, d_k=17, d_v=3, mask="random"),
            "3d-mask-per-batch": attention(5, queries=3, keys=11, mask="full"),
            "3d-padding": attention(5, queries=3, keys=11, mask="padding"),
            "3d-square": attention(6, queries=6, keys=6, d_k=6, d_v=6, mask="random"),
            "3d-large-logits": attention(3, queries=7, keys=11, mask="random", scale=3e4),
            "3d-queries-far-apart": attention(
                3, queries=7, keys=5, d_k=3, d_v=2, mask="random", shift=2e4, dtype=torch.float64
            ),
            "3d-queries-very-far-apart": attention(
                3, queries=7, keys=5, d_k=3, d_v=2, mask="random", shift=3e10, dtype=torch.float64
            ),
            "3d-one-dimension": attention(3, d_k=1, d_v=1, mask="random"),
            "4d-no-mask": attention(3, 2, queries=7, keys=11, d_k=5, d_v=3),
            "4d-causal": attention(3, 2, queries=11, keys=11, d_k=5, mask="causal"),
            "4d-random-mask": attention(3, 2, queries=11, keys=13, d_k=17, d_v=3, mask="random"),
            "4d-mask-per-head": attention(3, 5, queries=2, keys=11, mask="full"),
            "4d-padding": attention(5, 2, queries=3, keys=11, mask="padding"),
            "4d-one-key-value-head": attention(3, 5, kv_batch=(3, 1), queries=3, mask="random"),
            "4d-square": attention(6, 6, queries=6, keys=6, d_k=6, d_v=6, mask="random"),
            "other-no-batch": attention(queries=11, keys=3, mask="random"),
            "other-five-batch-dims": attention(1, 3, 2, 1, 2, queries=3, keys=5, mask="random"),
        },
    ),
    *specs(
        "attention-half-precision",
        "run_scaled_dot_product_attention",
        {name: attention(3, queries=7, keys=101, mask="random", dtype=dtype) for name, dtype in HALF_PRECISION.items()},
    ),
    *specs(
        "attention-last-digit",
        "run_scaled_dot_product_attention",
        {name: attention(3, queries=7, keys=11, mask="random", dtype=dtype) for name, dtype in FULL_PRECISION.items()},
    ),
    *specs(
        "attention-gradients",
        "run_scaled_dot_product_attention",
        {
            "3d-causal": attention(3, queries=11, keys=11, d_k=5, mask="causal"),
            "4d-random-mask": attention(3, 2, queries=3, keys=5, mask="random"),
            "3d-random-mask": attention(3, mask="random"),
        },
        gradients=("Q", "K", "V"),
    ),
    *specs(
        "attention-nothing",
        "run_scaled_dot_product_attention",
        {
            "3d": attention(3, queries=7, keys=3, mask="empty rows"),
            "4d": attention(3, 2, queries=7, keys=11, mask="empty rows"),
        },
    ),
    *specs(
        "linear",
        "run_linear",
        {
            "vector": linear(d_in=11, d_out=3),
            "3d": linear(3, 2, d_in=3, d_out=11),
            "4d": linear(2, 3, 5, d_in=11, d_out=7),
            "square": linear(6, 6, d_in=6, d_out=6),
        },
    ),
    *specs(
        "rope",
        "run_rope",
        {
            "no-batch": rope(positions="spaced", sequence=11),
            "offset": rope(3, positions="offset", sequence=7, d_k=10),
            "permuted": rope(3, positions="permuted", sequence=11, d_k=10),
            "spaced": rope(3, 5, positions="spaced", sequence=7, d_k=6),
            "per-batch": rope(3, positions="per batch", sequence=7),
            "per-batch-with-heads": rope(3, 5, positions="per batch, shared by heads", sequence=7),
            "small-theta": rope(3, positions="spaced", theta=50.0, max_seq_len=200),
            "large-theta": rope(3, positions="spaced", theta=5e5),
            "longest-sequence": rope(3, positions="in order", sequence=13, max_seq_len=13),
            "square": rope(6, 6, positions="permuted", sequence=6, d_k=6),
        },
    ),
    *specs(
        "rope-gradients",
        "run_rope",
        {"permuted": rope(3, positions="permuted", d_k=10), "two-batch-dims": rope(3, 5, positions="spaced", d_k=6)},
        gradients=("in_query_or_key",),
    ),
    *specs(
        "multihead",
        "run_multihead_self_attention",
        {
            "3d": multihead(3, sequence=11, d_model=20, num_heads=5),
            "no-batch": multihead(sequence=11, d_model=20, num_heads=5),
            "two-batch-dims": multihead(3, 2, d_model=12, num_heads=2),
            "two-heads": multihead(3, sequence=5, d_model=28, num_heads=2),
            "one-head": multihead(3, sequence=5, d_model=14, num_heads=1),
            "heads-of-one": multihead(3, d_model=7, num_heads=7),
            "square": multihead(6, sequence=6, d_model=36, num_heads=6),
        },
    ),
    *specs(
        "multihead-gradients",
        "run_multihead_self_attention",
        {"3d": multihead(3, sequence=5, d_model=20, num_heads=5)},
        gradients=("in_features",),
    ),
    *specs(
        "multihead-rope",
        "run_multihead_self_attention_with_rope",
        {
            "in-order": multihead(3, positions="in order", sequence=11, d_model=20, num_heads=5),
            "positions-not-given": multihead(3, positions="not given", sequence=11, d_model=20, num_heads=5),
            "permuted": multihead(3, positions="permuted", sequence=11, d_model=20, num_heads=5),
            "spaced": multihead(3, positions="spaced", sequence=5, d_model=28, num_heads=7),
            "per-batch": multihead(3, positions="per batch", sequence=5, d_model=28, num_heads=7),
            "two-batch-dims": multihead(3, 2, positions="spaced", d_model=12, num_heads=2),
            "small-theta": multihead(3, positions="spaced", theta=50.0),
            "square": multihead(6, positions="spaced", sequence=6, d_model=36, num_heads=6),
        },
    ),
    *specs(
        "multihead-rope-gradients",
        "run_multihead_self_attention_with_rope",
        {"permuted": multihead(3, positions="permuted", sequence=5, d_model=20, num_heads=5)},
        gradients=("in_features",),
    ),
    *specs(
        "attention_module",
        "run_scaled_dot_product_attention_module",
        {
            "3d-no-mask": attention_module(3, queries=7, keys=11, d_k=5),
            "3d-causal": attention_module(3, queries=11, keys=11, d_k=5, mask="causal", dropout=0.5, training=False),
            "3d-nothing": attention_module(3, queries=7, keys=3, mask="empty rows"),
            "4d-mask-per-head": attention_module(3, 5, queries=2, keys=11, mask="full"),
            "4d-padding": attention_module(5, 2, queries=3, keys=11, mask="padding", dropout=0.5, training=False),
        },
    ),
    *specs(
        "attention_module-dropout",
        "run_scaled_dot_product_attention_module",
        {
            "3d-causal": attention_module(3, queries=41, keys=41, d_k=5, mask="causal", dropout=0.15),
            "4d-no-mask": attention_module(3, 2, queries=23, keys=29, dropout=0.6),
        },
    ),
    *specs(
        "multihead_attention",
        "run_multihead_attention",
        {
            "no-mask": multihead_attention(3, queries=11, keys=3, d_model=20, num_heads=5),
            "padding": multihead_attention(5, queries=3, keys=11, d_model=20, num_heads=5, mask="padding"),
            "padding-throughout": multihead_attention(3, queries=2, mask="nothing"),
            "full-mask": multihead_attention(3, queries=11, keys=5, d_model=14, num_heads=2, mask="full"),
            "mask-per-head": multihead_attention(3, queries=2, keys=5, d_model=28, num_heads=7, mask="per head"),
            "no-batch-padding": multihead_attention(queries=3, keys=11, d_model=15, num_heads=5, mask="padding"),
            "two-batch-dims": multihead_attention(3, 2, d_model=14, num_heads=2, mask="same for all"),
            "square-padding": multihead_attention(6, queries=6, keys=6, d_model=36, num_heads=6, mask="padding"),
        },
    ),
    *specs(
        "blockwise",
        "run_blockwise_attention",
        {
            "blocks-of-1": blockwise(3, queries=3, keys=5, block_size=1, mask="random"),
            "blocks-of-5": blockwise(3, queries=13, keys=11, block_size=5, mask="random"),
            "size-not-given": blockwise(3, queries=7, keys=11, block_size=None, mask="random"),
            "one-block": blockwise(3, queries=7, keys=11, block_size=100),
            "causal": blockwise(3, queries=13, keys=13, block_size=5, mask="causal"),
            "first-block-hidden": blockwise(3, queries=11, keys=13, block_size=3, mask="later keys"),
            "nothing-to-attend-to": blockwise(3, queries=7, keys=5, block_size=2, mask="empty rows"),
            "padding": blockwise(5, queries=3, keys=11, block_size=2, mask="padding"),
            "mask-per-head": blockwise(3, 2, queries=5, keys=11, block_size=3, mask="full"),
            "one-key-value-head": blockwise(3, 5, queries=3, kv_batch=(3, 1), block_size=2, mask="random"),
            "large-logits": blockwise(3, queries=5, keys=13, block_size=3, mask="random", scale=100.0),
            "queries-far-apart": blockwise(3, block_size=2, mask="random", shift=1e3, dtype=torch.float64),
            "square": blockwise(6, queries=6, keys=6, d_k=6, d_v=6, block_size=4, mask="random"),
            "one-dimension": blockwise(queries=7, keys=11, d_k=1, d_v=1, block_size=2),
        },
    ),
    *specs(
        "blockwise-last-digit",
        "run_blockwise_attention",
        {
            name: blockwise(3, keys=103, block_size=11, mask="random", dtype=dtype)
            for name, dtype in (HALF_PRECISION | FULL_PRECISION).items()
        },
    ),
    *specs(
        "blockwise-gradients",
        "run_blockwise_attention",
        {
            "causal": blockwise(3, queries=11, keys=11, block_size=3, mask="causal"),
            "first-block-hidden": blockwise(3, queries=5, keys=11, block_size=3, mask="later keys"),
        },
        gradients=("Q", "K", "V"),
    ),
]
