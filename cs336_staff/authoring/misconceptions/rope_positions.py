"""RoPE at other positions."""

import torch

from cs336_staff.authoring.misconceptions.parts import in_rope, rotate

HINT = (
    "Does your answer change when the token positions change? It should follow `token_positions`, not the row number."
)

ENTRIES = (
    in_rope(
        "rope-from-one",
        "your positions are one too large",
        "What does RoPE do to the token at position 0?",
        lambda x, positions, theta: rotate(x, positions + 1, theta),
    ),
    in_rope(
        "rope-positions-ignored",
        "you used the row number, not `token_positions`",
        HINT,
        lambda x, positions, theta: rotate(x, torch.arange(x.shape[-2]), theta),
    ),
    in_rope(
        "rope-positions-of-first-batch",
        "you used the positions of the first sequence for all of them",
        "May two sequences of one batch have different positions?",
        lambda x, positions, theta: rotate(x, positions if positions.ndim == 1 else positions[:1], theta),
    ),
    in_rope(
        "rope-positions-from-first",
        "you counted on from the first position, but positions may skip and go back",
        HINT,
        lambda x, positions, theta: rotate(x, positions[..., :1] + torch.arange(x.shape[-2]), theta),
    ),
    in_rope("rope-skipped", "you did not rotate at all", HINT, lambda x, positions, theta: x.clone()),
)
