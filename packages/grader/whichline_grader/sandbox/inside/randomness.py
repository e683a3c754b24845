"""Random numbers: a call draws from the state in which its test left each generator, as on the student's machine."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

Seeds = tuple[int, int, int]  # of Python's own generator, of torch's and of numpy's


def draw_seeds() -> Seeds:
    """Draw a seed from each generator; a test that seeds a generator again gets the same one."""
    return random.getrandbits(32), int(torch.randint(1 << 62, ())), int(np.random.randint(1 << 31))


def seed(seeds: Seeds) -> None:
    random.seed(seeds[0])
    torch.default_generator.manual_seed(seeds[1])
    np.random.seed(seeds[2] % (1 << 32))


@contextmanager
def seeded(seeds: Seeds) -> Iterator[None]:
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()
    seed(seeds)
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        np.random.set_state(before[2])
