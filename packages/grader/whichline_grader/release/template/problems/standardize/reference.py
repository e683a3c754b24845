"""CHANGE: the right program, as ordinary code. What it names is what the values of a student's code are held against.

A comment `#:` gives a value the name that your handout has for it, and asks what a tutor asks of who has another.
"""

from torch import Tensor


# 1 Standardize
def run_standardize(x: Tensor, eps: float) -> Tensor:
    mean = x.mean(-1, keepdim=True)  #: the mean of each row. Over which axis do you average?
    centred = x - mean  #: x − the mean of its row
    variance = centred.square().mean(-1, keepdim=True)  #: the variance of each row. By what do you divide Σ(x − mean)²?
    deviation = (variance + eps).sqrt()  #: the root of the variance + eps. Where does eps stand?
    return centred / deviation
