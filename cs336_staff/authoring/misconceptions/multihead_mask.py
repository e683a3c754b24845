"""Multi-head attention with another mask than the causal one."""

import torch

from cs336_staff.authoring.misconceptions.parts import causal, in_multihead

HINT = "May the token at position 2 look at itself? At position 3? Change the last token: which outputs may change?"

ENTRIES = (
    in_multihead("multihead-no-mask", "you did not use a causal mask", HINT, mask=lambda length: None),
    in_multihead(
        "multihead-mask-peeks",
        "your mask is shifted by one: every token sees the next one",
        HINT,
        mask=lambda length: torch.ones(length, length, dtype=torch.bool).tril(1),
    ),
    in_multihead(
        "multihead-mask-strict",
        "your mask is shifted by one: no token sees itself",
        HINT,
        mask=lambda length: torch.ones(length, length, dtype=torch.bool).tril(-1),
    ),
    in_multihead(
        "multihead-mask-upper",
        "your mask is the upper triangle: every token sees only itself and later ones",
        HINT,
        mask=lambda length: causal(length).mT,
    ),
    in_multihead(
        "multihead-mask-inverted",
        "your mask is True where a token may not look",
        "What does True mean in the mask of your attention: may attend, or may not?",
        mask=lambda length: ~causal(length),
    ),
)
