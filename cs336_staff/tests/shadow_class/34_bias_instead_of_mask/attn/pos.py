import functools

import numpy as np
import torch


@functools.lru_cache
def frequencies(d, theta):
    return theta ** (-np.arange(0, d, 2, dtype=np.float64) / d)


def rope(x, positions, theta):
    angles = positions.unsqueeze(-1).numpy() * frequencies(x.shape[-1], theta)
    cos, sin = (torch.tensor(f(angles), dtype=x.dtype) for f in (np.cos, np.sin))
    return torch.stack([x[..., 0::2] * cos - x[..., 1::2] * sin, x[..., 0::2] * sin + x[..., 1::2] * cos], -1).flatten(-2)
