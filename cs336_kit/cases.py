"""Cases: the stored inputs and right answers that the tests run on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cs336_kit.compare import compare

METADATA = "case"


class CaseError(Exception):
    """A case file is missing or damaged; the message says which and what to do."""


@dataclass(frozen=True)
class Case:
    """One stored call of an adapter.

    `case.Q` is the input named Q, a tensor or a plain number; every test gets tensors of its own.

    Args:
        name: folder and file name, "attention/3d-causal".
        inputs: what the adapter is called with.
        cotangent: for cases with gradients, the gradient of the loss with respect to the answer.
        expected: the right answers in float64: "answer", and "gradient of Q" and so on where gradients are stored.
        tolerance: for each of `expected`, the largest error that a right implementation may have.
    """

    name: str
    inputs: dict[str, Any]
    cotangent: Tensor | None
    expected: dict[str, Tensor]
    tolerance: dict[str, float]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.inputs[name]
        except KeyError:
            raise AttributeError(f"the case {self.name} has no input {name}, it has {', '.join(self.inputs)}") from None

    def check(self, answer: Any) -> None:
        """Fail, with what is wrong, unless `answer` is the right one."""
        self._compare(answer, "answer", self.dtype)

    def check_gradients(self, answer: Any) -> None:
        """Fail, with what is wrong, unless the gradients of `answer` with respect to the inputs are right.

        Which inputs: those that `require_gradients` marked.
        """
        leaves = {name: x for name, x in self.inputs.items() if isinstance(x, Tensor) and x.requires_grad}
        self.check(answer)
        assert answer.requires_grad, (
            "the answer is cut off from its inputs, so nothing can be learned through it: look for .detach(), .data, "
            ".item(), .numpy(), torch.tensor(...) or torch.no_grad() in your code"
        )
        gradients = torch.autograd.grad(answer, list(leaves.values()), self.cotangent, allow_unused=True)
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            assert gradient is not None, f"the answer does not depend on {name}: its gradient is missing"
            self._compare(gradient, f"gradient of {name}", leaf.dtype)

    def require_gradients(self) -> None:
        """Mark the inputs whose gradients are stored."""
        for name in self.expected:
            if name != "answer":
                self.inputs[name.removeprefix("gradient of ")].requires_grad_()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the answer should have: that of the first floating-point input."""
        return next(x.dtype for x in self.inputs.values() if isinstance(x, Tensor) and x.is_floating_point())

    def _compare(self, answer: Any, what: str, dtype: torch.dtype) -> None:
        compare(answer, self.expected[what], dtype, self.tolerance[what], what)


def case_names(fixtures: Path, pattern: str) -> list[str]:
    """The names of the cases under `fixtures` that match, "attention/3d-*", in order."""
    return sorted(
        path.relative_to(fixtures).with_suffix("").as_posix() for path in fixtures.glob(f"{pattern}.safetensors")
    )


def load_case(fixtures: Path, name: str) -> Case:
    """Read one case.

    Raises:
        CaseError: the file is missing or damaged.
    """
    with _reading(fixtures, name) as (tensors, metadata):
        stored = {key.removeprefix("input/"): x for key, x in tensors.items() if key.startswith("input/")}
        return Case(
            name=name,
            inputs={key: stored.get(key, metadata["arguments"].get(key)) for key in metadata["order"]},
            cotangent=tensors.get("cotangent"),
            expected={key.removeprefix("expected/"): x for key, x in tensors.items() if key.startswith("expected/")},
            tolerance=metadata["tolerance"],
        )


def load_metadata(fixtures: Path, name: str) -> dict[str, Any]:
    """How one case was made: call, seed, generator, torch version and sha256 of the inputs, among others.

    Raises:
        CaseError: the file is missing or damaged.
    """
    with _reading(fixtures, name) as (_, metadata):
        return metadata


@contextmanager
def _reading(fixtures: Path, name: str) -> Iterator[tuple[dict[str, Tensor], dict[str, Any]]]:
    path = fixtures / f"{name}.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            metadata = json.loads(file.metadata()[METADATA])
        yield tensors, metadata
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CaseError(f"the case {path} cannot be read ({error}); take it again from the handout") from None
