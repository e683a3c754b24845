"""One call of attention, as a file or a stored case has it."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cs336_kit.engine.case import CaseError, case_names, load_case
from cs336_kit.lab.bad_input import BadInput


@dataclass(frozen=True)
class Call:
    """The arguments of one call, of whatever shapes and dtypes they came in."""

    name: str
    Q: Tensor
    K: Tensor
    V: Tensor
    mask: Tensor | None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that are there, by name."""
        tensors = {"Q": self.Q, "K": self.K, "V": self.V}
        return tensors if self.mask is None else tensors | {"mask": self.mask}

    @property
    def batch(self) -> torch.Size:
        """The batch-like dimensions that they broadcast to; a RuntimeError if they do not."""
        return torch.broadcast_shapes(*(x.shape[:-2] for x in self.tensors.values()))


def call_from_file(path: Path) -> Call:
    """Read Q, K, V and, if it is there, mask from a safetensors file; a stored case has them as "input/Q".

    Raises:
        BadInput: the file is missing, no safetensors, or lacks one of them.
    """
    try:
        tensors = load_file(path)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise BadInput(f"{path} is no safetensors file ({error}): write one with safetensors.torch.save_file") from None
    return _call(str(path), {name.removeprefix("input/"): x for name, x in tensors.items()})


def call_from_case(fixtures: Path, name: str) -> Call:
    """The inputs of a stored case of attention.

    Raises:
        BadInput: there is no such case, or it is of another function.
    """
    names = case_names(fixtures, "*/*")
    if name not in names:
        near = get_close_matches(name, names, n=3, cutoff=0.0)
        raise BadInput(f"there is no case {name}: is it one of {', '.join(near)}?")
    try:
        return _call(name, load_case(fixtures, name).inputs)
    except CaseError as error:
        raise BadInput(str(error)) from None


def _call(name: str, inputs: dict[str, Any]) -> Call:
    if missing := [key for key in ("Q", "K", "V") if not isinstance(inputs.get(key), Tensor)]:
        raise BadInput(
            f"{name} lacks {' and '.join(missing)}, it has {', '.join(inputs) or 'nothing'}: "
            "a call of attention is Q, K, V and, if there is one, mask"
        )
    return Call(name, inputs["Q"], inputs["K"], inputs["V"], inputs.get("mask"))
