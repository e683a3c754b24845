"""A suite as suites usually are: three calls, each compared with the right answer as by `assert_allclose`."""

from collections.abc import Callable, Mapping

import torch
from torch import Generator, Tensor
from torch.testing import assert_close

from cs336_staff.authoring import references
from cs336_staff.authoring.parts import Adapter

RTOL, ATOL = 1e-4, 1e-6


def softmax(generator: Generator) -> tuple[str, dict]:
    return "run_softmax", {"in_features": torch.randn(3, 5, generator=generator), "dim": -1}


def attention(*batch: int) -> Callable[[Generator], tuple[str, dict]]:
    """Batch = heads, and a mask of the full shape: as many queries, keys and components as such suites have."""

    def draw(generator: Generator) -> tuple[str, dict]:
        Q, K, V = (torch.randn(*batch, length, 64, generator=generator) for length in (12, 16, 16))
        mask = torch.rand(*batch, 12, 16, generator=generator) < 0.5
        return "run_scaled_dot_product_attention", {"Q": Q, "K": K, "V": V, "mask": mask}

    return draw


TESTS: dict[str, Callable[[Generator], tuple[str, dict]]] = {
    "softmax": softmax,
    "3D attention": attention(4),
    "4D attention": attention(2, 2),
}


def failed_tests(adapters: Mapping[str, Adapter]) -> list[str]:
    """The names of the tests that fail on the given adapters."""
    return [name for name, draw in TESTS.items() if not _passes(adapters, *draw(Generator().manual_seed(0)))]


def _passes(adapters: Mapping[str, Adapter], call: str, inputs: dict) -> bool:
    expected = getattr(references, call)(**inputs)
    copies = {name: x.clone() if isinstance(x, Tensor) else x for name, x in inputs.items()}
    try:
        answer = adapters[call](**copies)
        assert_close(answer, expected, rtol=RTOL, atol=ATOL, check_dtype=False)
    except Exception:
        return False
    return True
