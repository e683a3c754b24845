"""The right program of `conv2d`, each value named as the handout names it."""

import torch
from torch import Tensor

from whichline.engine.room import Room
from whichline.way.steps import Steps


def follow_conv2d(step: Steps, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> Tensor:
    step.section = "1 Convolution"
    kh, kw = weight.shape[2:]
    padded = torch.nn.functional.pad(x, (padding, padding, padding, padding))
    step("x with zeros around it", padded, "At which ends of which axes do the zeros stand?")
    windows = padded.unfold(2, kh, stride).unfold(3, kw, stride)
    step("the window of each output", windows, "Where does the window of output (i, j) begin, and end?")
    columns = windows.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    step("the window of each output, as a row", columns, "In which order are the axes of a window flattened?")
    step("weight as it is", weight, "Does the sum of the handout flip the kernel, or swap its axes?")
    step("the kernel of each output channel, as a row", weight.flatten(1))
    taps = step("x under weight[o, c, p, q]", windows.permute(4, 5, 0, 1, 2, 3), "Which x meet weight[:, :, p, q]?")
    terms = torch.einsum("pqbcij,ocpq->pqboij", taps, weight)
    step("the term of each (p, q)", terms, "Which element of the kernel meets these x?")
    step("the sum of the terms up to (p, q)", terms.flatten(0, 1).cumsum(0))
    answer = terms.sum((0, 1))
    step("the sum of window × kernel", answer, "Which element of the kernel meets the first of a window?")
    if bias is not None:
        answer = answer + step("the bias of each output channel", bias[:, None, None], "Which axis has the bias?")
    return step("the answer", answer)


ROOM = Room(steps={"run_conv2d": follow_conv2d})
