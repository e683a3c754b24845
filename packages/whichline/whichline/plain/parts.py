"""Taking arguments and results apart into named tensors and numbers, and putting them together again."""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whichline.engine.compare import find_scale, is_float, same
from whichline.locate.probe import ARRAYS
from whichline.locate.run import copy_tensors

ANSWER, GRADIENT = "answer", ".grad"
ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-5}  # of the largest number: how far two right ways may differ
NOTHING = 64  # times eps: what rounding leaves of numbers that cancel, beside the smallest argument
FORM = "form of the arguments"  # stored among the parts, under a name that no argument has
MADE = "__made__"  # the attribute with an object's construction, if its class has a reference
Parts = dict[str, Any]  # tensors and numbers, by name: `w["query"]`


@dataclass(frozen=True)
class Slot:
    """The place of a part, and a function that turns the part back into the original value."""

    name: str
    restore: Callable[[Any], Any] = lambda x: x


class Built(dict[str, Any]):
    """The form of an object that is made again, by its own class or by the reference's."""

    def build(self, parts: Parts, is_reference: bool) -> Any:
        raise NotImplementedError


def take_apart(value: Any, name: str, parts: Parts, is_whole: bool = False) -> Any:
    """Add the tensors and numbers in a value to `parts`, and return its form: the value with slots in their place.

    With `is_whole`, the form of an object that has a reference is its history.
    """
    if isinstance(value, Tensor) or type(value) in (bool, int, float, complex):
        parts[name] = value
        if isinstance(value, Tensor) and value.is_leaf and value.grad is not None:
            parts[name + GRADIENT] = value.grad
        return Slot(name)
    if isinstance(value, np.ndarray) and value.dtype.name in ARRAYS:
        is_shared = value.flags.writeable and all(stride >= 0 for stride in value.strides)
        parts[name] = torch.from_numpy(value if is_shared else np.array(value))
        return Slot(name, Tensor.numpy)
    if isinstance(value, np.generic) and value.dtype.name in ARRAYS:
        parts[name] = value.item()
        return Slot(name, type(value))
    if isinstance(value, list | tuple) and len(kinds := {type(each) for each in value}) == 1 and kinds < {int, float}:
        parts[name] = torch.tensor(value, dtype=torch.int64 if kinds == {int} else torch.float64)
        return Slot(name, lambda x: type(value)(x.tolist()))
    if isinstance(value, Mapping | list | tuple):
        form = {key: take_apart(each, f"{name}[{key!r}]", parts, is_whole) for key, each in _list_items(value)}
        return _fill(value, form)
    made = find_construction(value) if is_whole else None
    return made.take_apart(value, name, parts) if made else value


def find_construction(value: Any) -> Any:
    """Return how an object was made; None if its class has no reference."""
    return getattr(value, "__dict__", {}).get(MADE)


def put_together(form: Any, parts: Parts, is_reference: bool = False) -> Any:
    """Put a value together from its form and its parts; copy all else in the form, if it can be copied."""
    if isinstance(form, Slot):
        value = form.restore(parts[form.name])
        if form.name + GRADIENT in parts:
            value = value.detach().requires_grad_(value.requires_grad)
            value.grad = parts[form.name + GRADIENT]
        return value
    if isinstance(form, Built):
        return form.build(parts, is_reference)
    if isinstance(form, Mapping | list | tuple):
        return _fill(form, {key: put_together(each, parts, is_reference) for key, each in _list_items(form)})
    try:
        return copy.deepcopy(form)
    except Exception:  # a generator, a lock, whatever cannot be copied
        return form


def list_outputs(answer: Any, arguments: Any, changed: Collection[str]) -> dict[str, Tensor]:
    """Return the tensors and numbers in a function's result, and in the arguments that it should change."""
    parts: Parts = {}
    take_apart(answer, ANSWER, parts)
    parts = dict(zip((ANSWER,), parts.values(), strict=True)) if len(parts) == 1 else parts
    left = list_arguments(arguments) if changed else {}
    parts |= {name: left[name] for name in sorted(left) if name in changed}  # a twin lists them in another order
    return {name: as_tensor(x) for name, x in parts.items()}


def list_texts(value: Any, name: str = ANSWER) -> dict[str, str | bytes]:
    """List the texts in a value, by name."""
    if isinstance(value, str | bytes):
        return {name: value}
    if not isinstance(value, Mapping | list | tuple):
        return {}
    items = (list_texts(each, f"{name}[{key!r}]") for key, each in _list_items(value))
    return {each: text for texts in items for each, text in texts.items()}


def list_arguments(arguments: Mapping[str, Any]) -> Parts:
    """Return the tensors and numbers in arguments, as they are now."""
    parts: Parts = {}
    for name, value in arguments.items():
        if made := find_construction(value):
            parts |= {f"{name}.{key}": x for key, x in made.list_tensors(value).items()}
        else:
            take_apart(value, name, parts)
    return parts


def copy_parts(parts: Parts) -> Parts:
    """Copy the parts, and their form if it can be copied."""
    try:
        form = copy.deepcopy(parts[FORM])
    except Exception:  # a lock, a generator
        form = parts[FORM]
    detached = {name: x.detach().requires_grad_(x.requires_grad) for name, x in parts.items() if isinstance(x, Tensor)}
    return {**copy_tensors({**parts, **detached}), FORM: form}


def is_right(came: Tensor, right: Tensor, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a tensor is right, within the precision of the dtypes involved.

    Beside the arguments, two tensors may be mere errors of rounding: then they are alike.
    """
    if came.shape != right.shape or (came.dtype == torch.bool) != (right.dtype == torch.bool):
        return False
    given = [x for x in arguments.values() if is_float(x)]
    dtypes = [x.dtype for x in (*given, came, right) if is_float(x)]
    within = max((ROUNDING.get(dtype, 8 * torch.finfo(dtype).eps) for dtype in dtypes), default=0.0)
    nothing = NOTHING * max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
    if is_float(came) and max(find_scale(came), find_scale(right)) < nothing * min(map(find_scale, given), default=0.0):
        return True
    return bool(same(came, right, within).all())


def as_tensor(x: Any) -> Tensor:
    """Return a tensor as it is; make one of a number, with two elements if that is complex."""
    if isinstance(x, complex):
        return torch.tensor([x.real, x.imag], dtype=torch.float64)
    return x if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.bool if type(x) is bool else torch.float64)


def _list_items(value: Any) -> Iterator[tuple[Any, Any]]:
    yield from value.items() if isinstance(value, Mapping) else enumerate(value)


def _fill(value: Any, parts: dict[Any, Any]) -> Any:
    """Make a mapping, a list or a tuple of the same kind from other parts."""
    if isinstance(value, dict):
        new = copy.copy(value)
        dict.update(new, parts)  # a subclass may forbid its own `update`
        return new
    if isinstance(value, Mapping):
        return parts
    return type(value)(*parts.values()) if hasattr(value, "_fields") else type(value)(parts.values())
