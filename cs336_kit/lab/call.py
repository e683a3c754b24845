"""One call of attention, read from a file or from a stored case."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cs336_kit.engine.case import Case, case_names, load_case
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.student import ADAPTER

NAMES = ("Q", "K", "V", "mask")


def make_call(name: str, tensors: Mapping[str, Any]) -> Case:
    """A call with these arguments, of whatever shapes and dtypes they are; what is right is not known yet.

    Raises:
        BadInput: Q, K or V is not among them.
    """
    if missing := [key for key in NAMES[:3] if not isinstance(tensors.get(key), Tensor)]:
        raise BadInput(
            f"{name} lacks {' and '.join(missing)}, it has {', '.join(tensors) or 'nothing'}: "
            "a call of attention is Q, K, V and, if there is one, mask"
        )
    return Case(name, ADAPTER, {key: tensors.get(key) for key in NAMES}, None, {})


def read_call(path: Path) -> Case:
    """Read Q, K, V and, if it is there, mask from a safetensors file.

    Raises:
        BadInput: the file is missing, is not a safetensors file, or lacks one of them.
    """
    try:
        return make_call(str(path), load_file(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        advice = "write one with safetensors.torch.save_file"
        raise BadInput(f"{path} is not a safetensors file ({error}): {advice}") from None


def read_case(fixtures: Path, name: str) -> Case:
    """Read a stored case of attention, which has what is right.

    Raises:
        BadInput: there is no such case.
        CaseError: its file is damaged.
    """
    names = list_cases(fixtures)
    if name not in names:
        raise BadInput(f"there is no case {name} of attention: is it {get_close_matches(name, names, 1, 0.0)[0]}?")
    case = load_case(fixtures, name)
    return replace(make_call(name, case.inputs), cotangent=case.cotangent, expected=case.expected)


def list_cases(fixtures: Path) -> list[str]:
    """The names of the stored cases of attention."""
    return [name for folder in ("attention", "attention-*") for name in case_names(fixtures, f"{folder}/*")]
