"""Cross-entropy in steps."""

import torch
from torch import Tensor

from cs336_kit.way.steps import Steps

LARGE = "What is exp(1000) in float32?"


def follow_cross_entropy(step: Steps, logits: Tensor, targets: Tensor) -> Tensor:
    step.section = "4 Cross-entropy"
    largest = step("each row's largest logit", logits.amax(1), LARGE)
    shifted = step("the logits − each row's largest", logits - largest[:, None], LARGE)
    total = step("the sum of the exponentials", shifted.exp().sum(1), LARGE)
    step("log Σ exp of the logits", largest + total.log(), LARGE)
    logarithms = step("the logarithms of the probabilities", shifted - total.log()[:, None], LARGE)
    losses = step(
        "the loss of each row", -logarithms[torch.arange(len(targets)), targets], "Which logit is the target's?"
    )
    return step("the answer", losses.mean(), "Is it a sum or a mean?")
