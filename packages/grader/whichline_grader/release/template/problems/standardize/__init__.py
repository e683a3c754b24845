"""CHANGE: the right program, each value named as your handout names it, with what a tutor asks of who has another."""

from torch import Tensor

from whichline.engine.room import Room
from whichline.way.steps import Steps


def follow_standardize(step: Steps, x: Tensor, eps: float) -> Tensor:
    step.section = "1 Standardize"
    mean = step("the mean of each row", x.mean(-1, keepdim=True), "Over which axis do you average?")
    centred = step("x − the mean of its row", x - mean)
    variance = step("the variance of each row", centred.square().mean(-1, keepdim=True), "By what do you divide Σ(x − mean)²?")
    deviation = step("the root of the variance + eps", (variance + eps).sqrt(), "Where does eps stand?")
    return step("the answer", centred / deviation)


ROOM = Room(steps={"run_standardize": follow_standardize})
