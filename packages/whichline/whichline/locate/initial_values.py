"""Random initial weights, drawn once: a search makes the same modules hundreds of times."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

SLOW = "_no_grad_trunc_normal_"  # behind `nn.init.trunc_normal_`, most of whose time goes into `erfinv`
MOST_NUMBERS = 1 << 25  # that are kept


class InitialValues:
    """The numbers that `trunc_normal_` drew, by its arguments and the state of the random numbers before it."""

    def __init__(self) -> None:
        self._drawn: dict[Hashable, tuple[Tensor, Tensor]] = {}  # with the state after it
        self._numbers = 0

    @contextmanager
    def reused(self) -> Iterator[None]:
        """Draw the same numbers from the same state only once in this block."""
        slow = getattr(nn.init, SLOW)

        def draw(tensor: Tensor, *given: Any, **named: Any) -> Tensor:
            if any(isinstance(each, torch.Generator) for each in (*given, *named.values())) or not tensor.is_cpu:
                return slow(tensor, *given, **named)
            key = tensor.shape, tensor.dtype, given, tuple(named.items()), torch.get_rng_state().numpy().tobytes()
            if key in self._drawn:
                values, after = self._drawn[key]
                torch.set_rng_state(after)
                with torch.no_grad():
                    return tensor.copy_(values)
            slow(tensor, *given, **named)
            self._numbers += tensor.numel()
            if self._numbers <= MOST_NUMBERS:
                self._drawn[key] = tensor.detach().clone(), torch.get_rng_state()
            return tensor

        setattr(nn.init, SLOW, draw)
        try:
            yield
        finally:
            setattr(nn.init, SLOW, slow)
