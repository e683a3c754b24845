"""The right program of `batch_norm`, each value named as the handout names it."""

from torch import Tensor

from whichline.engine.room import Room
from whichline.way.steps import Steps


def follow_batch_norm(
    step: Steps,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    eps: float,
) -> Tensor:
    step.section = "2 Batch normalisation"
    mean, variance, of = running_mean[:, None, None], running_var[:, None, None], "running "
    if training:
        of = "batch's "
        rows = step("x, one row for each channel", x.transpose(0, 1).flatten(1))
        step("the batch's sum of each channel", rows.sum(1))
        mean = x.mean((0, 2, 3), keepdim=True)[0]
    mean = step(f"the {of}mean of each channel", mean, "Which axes do you average over, and in which mode?")
    centred = step(f"x − the {of}mean of its channel", x - mean, "Which mean does this mode take?")
    if training:
        step("(x − the batch's mean of its channel)²", centred.square())
        step("x − the batch's mean, one row for each channel", centred.transpose(0, 1).flatten(1))
        variance = centred.square().mean((0, 2, 3), keepdim=True)[0]
    variance = step(f"the {of}variance of each channel", variance, "What do you divide Σ(x − mean)² by?")
    step(f"the {of}variance + eps", variance + eps, "Which variance does this mode take, and where does eps stand?")
    step("the root of the variance", variance.sqrt())
    deviation = step("the root of the variance + eps", (variance + eps).sqrt(), "Where does eps stand?")
    step("1 / the root of the variance + eps", 1 / deviation)
    normalised = step("x with mean 0 and variance 1", centred / deviation)
    weight = step("the weight of each channel", weight[:, None, None], "Along which axis does the weight lie?")
    scale = step("weight / root", weight / deviation)
    step("mean × weight / root", mean * scale)
    bias = step("the bias of each channel", bias[:, None, None], "Along which axis does the bias lie?")
    step("bias − mean × weight / root", bias - mean * scale)
    scaled = step("x with mean 0 and variance 1, times the weight", normalised * weight)
    return step("the answer", scaled + bias)


ROOM = Room(steps={"run_batch_norm": follow_batch_norm})
