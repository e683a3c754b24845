"""torch's own functions."""

from torch.nn import functional as F


def run_conv2d(x, weight, bias, stride, padding):
    return F.conv2d(x, weight, bias, stride, padding)


def run_batch_norm(x, weight, bias, running_mean, running_var, training, eps):
    return F.batch_norm(x, running_mean.clone(), running_var.clone(), weight, bias, training, eps=eps)
