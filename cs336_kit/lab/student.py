"""The student's attention, called through their `adapters.py`."""

import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.compare import WrongAnswer, check_shape, dtype_name
from cs336_kit.engine.failure import describe
from cs336_kit.engine.suite import Calls

PROBLEM = "scaled_dot_product_attention"
ADAPTER = f"run_{PROBLEM}"

# Called with Q, K, V and a boolean mask or None, it gives the output.
Attention = Callable[..., Tensor]


class Student:
    """The code in the folder of the assignment; or `attention`, a function to look at in its place.

    Raises:
        click.ClickException: `adapters.py` cannot be imported, in the words that a failing test has for it.
    """

    def __init__(self, attention: Attention | None = None) -> None:
        self.root = Path.cwd()
        self.adapters = Calls(SimpleNamespace(**{ADAPTER: attention}))
        if attention is None:
            self.root = find_root(self.root)
            sys.path.insert(0, str(self.root))  # `adapters.py` imports `cs336_basics` from beside it
            with self.in_words():
                self.adapters.adapters = SimpleNamespace(**runpy.run_path(str(self.root / "adapters.py")))

    def attention(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        V: Float[Tensor, "... keys d_v"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries d_v"]:
        """Call `run_scaled_dot_product_attention` on copies, and return its answer with its gradients.

        Raises:
            click.ClickException: it raises an error, or gives something other than a tensor of the right shape.
        """
        with self.in_words():
            copies = (x if x is None else x.clone() for x in (Q, K, V, mask))
            answer = self.adapters.run_scaled_dot_product_attention(*copies)
            check_shape(answer, (*broadcast(Q, K, V, mask), Q.shape[-2], V.shape[-1]))
            if not answer.is_floating_point():
                came, expected = dtype_name(answer.dtype), dtype_name(Q.dtype)
                raise WrongAnswer(f"the answer has dtype {came}, expected {expected}, that of the inputs")
        return answer

    def weights(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries keys"]:
        """The weights that the student's attention gives to each key: its output when the values are the identity."""
        identity = torch.eye(K.shape[-2], dtype=Q.dtype, device=Q.device)
        return self.attention(Q, K, identity.expand(*broadcast(Q, K, mask), -1, -1), mask)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Turn an error of the student's code into a click.ClickException."""
        try:
            yield
        except (Exception, SystemExit) as error:
            failure = describe(error, self.root)
            raise click.ClickException("\n".join((failure.headline, *failure.details))) from None


def broadcast(*tensors: Tensor | None) -> tuple[int, ...]:
    """The batch-like dimensions that they broadcast to."""
    return np.broadcast_shapes(*(x.shape[:-2] for x in tensors if x is not None))
