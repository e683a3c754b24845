"""The student's attention, called through their `adapters.py`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.compare import WrongAnswer, check_shape
from cs336_kit.engine.failure import describe

# Called with Q, K, V and a boolean mask or None, it gives the output.
Attention = Callable[..., Tensor]


class Student:
    """The code that a student wrote, imported from the folder of the assignment.

    Args:
        root: that folder, or one in it.
        attention: another function to look at, in place of `run_scaled_dot_product_attention`.

    Attributes:
        root: that folder.
        adapters: the module. What it raises is for the student to fix: call its functions within `in_words()`.

    Raises:
        click.ClickException: `adapters.py` cannot be imported, in the words that a failing test has for it.
    """

    def __init__(self, root: Path | None = None, attention: Attention | None = None) -> None:
        self.root = Path.cwd() if root is None else root
        if attention is not None:
            self.adapters = ModuleType("adapters")
            self.adapters.run_scaled_dot_product_attention = attention  # type: ignore[attr-defined]
            return
        self.root = find_root(self.root)
        sys.path.insert(0, str(self.root))  # `adapters.py` imports `cs336_basics` from beside it
        spec = spec_from_file_location("adapters", self.root / "adapters.py")
        assert spec is not None
        assert spec.loader is not None
        self.adapters = module_from_spec(spec)
        with self.in_words():
            spec.loader.exec_module(self.adapters)

    def differentiable(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        V: Float[Tensor, "... keys d_v"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries d_v"]:
        """Call `run_scaled_dot_product_attention` and return its answer, with its gradients.

        Raises:
            click.ClickException: it raises an error, or gives something other than a tensor of the right shape.
        """
        batch = np.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V, mask) if x is not None))
        with self.in_words():
            answer = self.adapters.run_scaled_dot_product_attention(Q, K, V, mask)
            check_shape(answer, (*batch, Q.shape[-2], V.shape[-1]))
            if not answer.is_floating_point():
                came, expected = (str(x.dtype).removeprefix("torch.") for x in (answer, Q))
                raise WrongAnswer(f"the answer has dtype {came}, expected {expected}, that of the inputs")
        return answer

    def attention(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        V: Float[Tensor, "... keys d_v"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries d_v"]:
        """The same without gradients, on copies: what the student's code changes must not be looked at."""
        with torch.no_grad():
            return self.differentiable(Q.clone(), K.clone(), V.clone(), None if mask is None else mask.clone())

    def weights(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries keys"]:
        """The weights that the student's attention gives to each key: its output when the values are the identity."""
        identity = torch.eye(K.shape[-2], dtype=Q.dtype, device=Q.device).expand(*K.shape[:-2], -1, -1)
        return self.attention(Q, K, identity, mask)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Turn an error of the student's code into a click.ClickException."""
        try:
            yield
        except click.ClickException:
            raise
        except (Exception, SystemExit) as error:
            failure = describe(error, self.root)
            raise click.ClickException("\n".join((failure.headline, *failure.details))) from None


def find_gradients(output: Tensor, cotangent: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradients of the leaves, for this one of the output; zeros for a leaf that the output does not depend on."""
    loss = (output * cotangent).sum()  # given a gradient, autograd imports sympy, which takes half a second
    return torch.autograd.grad(loss, leaves, materialize_grads=True)
