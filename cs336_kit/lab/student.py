"""The student's attention, called through their `adapters.py`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import click
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.engine.compare import WrongAnswer, check_shape
from cs336_kit.engine.failure import describe


class Student:
    """What a student wrote, imported from the folder of the assignment.

    Args:
        root: that folder.

    Attributes:
        adapters: the module. What it raises is the student's to mend: call its functions within `in_words()`.

    Raises:
        click.ClickException: `adapters.py` cannot be imported, in the words that a failing test has for it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        sys.path.insert(0, str(root))  # `adapters.py` imports `cs336_basics` from beside it
        spec = spec_from_file_location("adapters", root / "adapters.py")
        assert spec is not None
        assert spec.loader is not None
        self.adapters = module_from_spec(spec)
        with self.in_words():
            spec.loader.exec_module(self.adapters)

    def attention(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        V: Float[Tensor, "... keys d_v"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries d_v"]:
        """What `run_scaled_dot_product_attention` gives.

        Raises:
            click.ClickException: it raises an error, or gives something else than a tensor of the right shape.
        """
        batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (Q, K, V)), () if mask is None else mask.shape[:-2])
        with self.in_words(), torch.no_grad():
            own = (None if x is None else x.clone() for x in (Q, K, V, mask))  # what it changes must not be looked at
            answer = self.adapters.run_scaled_dot_product_attention(*own)
            check_shape(answer, (*batch, Q.shape[-2], V.shape[-1]))
            if not answer.is_floating_point():
                came, expected = (str(x.dtype).removeprefix("torch.") for x in (answer, Q))
                raise WrongAnswer(f"the answer has dtype {came}, expected {expected}, that of the inputs")
        return answer

    def weights(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries keys"]:
        """The weights that the student's attention gives to each key: its output when the values are the identity."""
        identity = torch.eye(K.shape[-2], dtype=Q.dtype).expand(*K.shape[:-2], -1, -1)
        return self.attention(Q, K, identity, mask)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Turn an error of the student's code into a click.ClickException."""
        try:
            yield
        except click.ClickException:
            raise
        except (Exception, SystemExit) as error:
            failure = describe(error, self._root)
            raise click.ClickException("\n".join((failure.headline, *failure.details))) from None
