"""The public cases.

Sizes are different primes, so that a swapped axis has an illegal shape; the square cases have equal sizes, so that a
swapped axis has a legal shape and a wrong value.
"""

import torch

from cs336_staff.cases.draws import attention, by_hand, linear, multihead, rope, softmax
from cs336_staff.cases.spec import CaseSpec, specs

PUBLIC: list[CaseSpec] = [
    *specs(
        "softmax",
        "run_softmax",
        {
            "1d": softmax(7, dim=0),
            "2d-first-dim": softmax(3, 5, dim=0),
            "3d-first-dim": softmax(2, 5, 7, dim=0),
            "3d-middle-dim": softmax(2, 5, 7, dim=1),
            "3d-last-dim": softmax(2, 5, 7, dim=-1),
            "4d-negative-dim": softmax(2, 3, 5, 7, dim=-2),
            "square": softmax(5, 5, 5, dim=1),
            "large-logits": softmax(3, 5, dim=-1, scale=1e4),
            "slices-far-apart": softmax(3, 5, dim=-1, shift=300.0),
            "some-minus-infinity": softmax(3, 11, dim=-1, hidden=0.4),
            "float16": softmax(3, 101, dim=-1, dtype=torch.float16),
            "bfloat16": softmax(3, 101, dim=-1, dtype=torch.bfloat16),
            "float64": softmax(3, 5, dim=-1, dtype=torch.float64),
        },
    ),
    *specs(
        "softmax-gradients",
        "run_softmax",
        {"last-dim": softmax(2, 5, 7, dim=-1), "middle-dim": softmax(2, 5, 7, dim=1)},
        gradients=("in_features",),
    ),
    *specs(
        "attention",
        "run_scaled_dot_product_attention",
        {
            "3d-no-mask": attention(2),
            "3d-causal": attention(2, queries=7, mask="causal"),
            "3d-random-mask": attention(2, queries=7, mask="random"),
            "3d-more-keys": attention(2, d_k=16, d_v=20, mask="random"),
            "3d-more-queries": attention(2, queries=11, mask="random"),
            "3d-mask-per-batch": attention(2, mask="full"),
            "3d-padding": attention(3, mask="padding"),
            "3d-square": attention(4, queries=4, keys=4, d_k=4, d_v=4, mask="random"),
            "3d-square-causal": attention(4, queries=4, keys=4, d_k=4, d_v=4, mask="causal"),
            "3d-large-logits": attention(2, mask="random", scale=1e4),
            "3d-queries-far-apart": attention(2, mask="random", shift=1e4, dtype=torch.float64),
            "3d-queries-very-far-apart": attention(2, mask="random", shift=1e10, dtype=torch.float64),
            "3d-one-token": attention(2, queries=1, keys=1),
            "3d-in-float16": attention(2, mask="random", dtype=torch.float16),
            "3d-in-bfloat16": attention(2, mask="random", dtype=torch.bfloat16),
            "3d-in-float64": attention(2, mask="random", dtype=torch.float64),
            "4d-no-mask": attention(2, 3),
            "4d-causal": attention(2, 3, queries=7, mask="causal"),
            "4d-random-mask": attention(2, 3, queries=7, mask="random"),
            "4d-more-keys": attention(2, 3, d_k=16, d_v=20, mask="random"),
            "4d-mask-per-head": attention(2, 3, mask="full"),
            "4d-padding": attention(2, 3, mask="padding"),
            "4d-one-key-value-head": attention(2, 3, kv_batch=(2, 1), mask="random"),
            "4d-square": attention(4, 4, queries=4, keys=4, d_k=4, d_v=4, mask="random"),
            "other-by-hand": by_hand,
            "other-no-batch": attention(mask="random"),
            "other-five-batch-dims": attention(2, 1, 3, 1, 2, mask="random"),
        },
    ),
    *specs(
        "attention-gradients",
        "run_scaled_dot_product_attention",
        {
            "3d-no-mask": attention(2),
            "3d-random-mask": attention(2, mask="random"),
            "4d-causal": attention(2, 3, queries=7, mask="causal"),
        },
        gradients=("Q", "K", "V"),
    ),
    *specs(
        "attention-nothing",
        "run_scaled_dot_product_attention",
        {"3d": attention(2, mask="empty rows")},
    ),
    *specs(
        "linear",
        "run_linear",
        {
            "vector": linear(d_in=5, d_out=7),
            "2d": linear(3, d_in=5, d_out=7),
            "3d": linear(2, 3, d_in=7, d_out=5),
            "square": linear(4, 4, d_in=4, d_out=4),
        },
    ),
    *specs(
        "rope",
        "run_rope",
        {
            "no-batch": rope(positions="in order"),
            "in-order": rope(2, positions="in order"),
            "offset": rope(2, positions="offset"),
            "permuted": rope(2, positions="permuted"),
            "spaced": rope(2, positions="spaced"),
            "per-batch": rope(2, positions="per batch"),
            "per-batch-with-heads": rope(2, 3, positions="per batch, shared by heads"),
            "small-theta": rope(2, positions="offset", theta=100.0),
            "one-pair": rope(2, positions="offset", d_k=2),
            "one-token": rope(2, positions="offset", sequence=1),
            "longest-sequence": rope(2, positions="in order", sequence=11, max_seq_len=11),
            "square": rope(4, 4, positions="permuted", sequence=4, d_k=4),
        },
    ),
    *specs(
        "multihead",
        "run_multihead_self_attention",
        {
            "3d": multihead(2),
            "no-batch": multihead(),
            "two-batch-dims": multihead(2, 5),
            "one-head": multihead(2, num_heads=1),
            "heads-of-one": multihead(2, d_model=5, num_heads=5),
            "one-token": multihead(2, sequence=1),
            "square": multihead(4, sequence=4, d_model=16, num_heads=4),
        },
    ),
    *specs(
        "multihead-rope",
        "run_multihead_self_attention_with_rope",
        {
            "in-order": multihead(2, positions="in order"),
            "positions-not-given": multihead(2, positions="not given"),
            "offset": multihead(2, positions="offset"),
            "permuted": multihead(2, positions="permuted"),
            "spaced": multihead(2, positions="spaced"),
            "per-batch": multihead(2, positions="per batch"),
            "no-batch": multihead(positions="spaced"),
            "two-batch-dims": multihead(2, 5, positions="spaced"),
            "small-theta": multihead(2, positions="spaced", theta=100.0),
            "one-token": multihead(2, positions="spaced", sequence=1),
            "longest-sequence": multihead(2, positions="in order", sequence=11, max_seq_len=11),
            "square": multihead(4, positions="spaced", sequence=4, d_model=16, num_heads=4),
        },
    ),
]
