"""The cases of `conv2d`."""

import torch

from whichline_grader.author import CaseSpec, ProblemSpec, Spread, draw_size, specs


def draw(image: tuple, kernel: tuple, stride: int = 1, padding: int = 0, bias: bool = True):
    return lambda generator: {
        "x": torch.randn(image, generator=generator),
        "weight": torch.randn(kernel, generator=generator),
        "bias": torch.randn(kernel[0], generator=generator) if bias else None,
        **{"stride": stride, "padding": padding},
    }


def draw_any(random: Spread) -> CaseSpec:
    n, c_in, kh, kw, c_out = (draw_size(random) for _ in range(5))
    return CaseSpec("conv2d", "run_conv2d", draw((n, c_in, kh + 3, kw + 2), (c_out, c_in, kh, kw), stride=2, padding=1))


PUBLIC = {
    "plain": draw((2, 3, 7, 10), (5, 3, 4, 2), bias=False),
    "bias": draw((2, 3, 7, 10), (5, 3, 4, 2)),
    "padding": draw((2, 3, 6, 9), (5, 3, 2, 4), padding=2),
}
STRIDE = {"stride": draw((2, 4, 9, 12), (5, 4, 2, 3), stride=2, padding=1)}
HIDDEN = {"stride": draw((3, 2, 11, 8), (4, 2, 5, 3), stride=3, padding=2)}
NAMES = ("x", "weight", "bias")
SPEC = ProblemSpec(
    public=specs("run_conv2d", {"conv2d": PUBLIC | STRIDE, "conv2d-gradients": STRIDE}, gradients=NAMES),
    hidden=specs("run_conv2d", {"conv2d": HIDDEN, "conv2d-gradients": HIDDEN}, gradients=NAMES),
)
