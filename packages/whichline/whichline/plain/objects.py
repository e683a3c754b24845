"""Objects whose class has a reference: how they were made, and what was called on them since.

An object of the code is made again, and its twin by the class of the reference, from the same arguments. Before each
call both get the state that the object had: weights and gradients, and whatever was set from outside.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, reduce
from importlib import import_module
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor, nn

from whichline.locate.observed import keep_state
from whichline.locate.values import is_equal
from whichline.plain import Names
from whichline.plain.parts import (
    FORM,
    GRADIENT,
    MADE,
    Built,
    Parts,
    Slot,
    copy_parts,
    find_construction,
    put_together,
    take_apart,
)

SELF, OF_INIT = "self", "{} of __init__"
MOST_CALLS = 24  # on one object that are compared


class UnlikeError(Exception):
    """An object has parameters that are not those of its twin; the message says which."""


@dataclass(frozen=True, eq=False)
class Kind:
    """A class of the code, and the one of the reference that bears its name.

    Args:
        made: the class.
        reference: the module of the reference, and the name there.
        names: what has another name there.
    """

    made: type
    reference: tuple[str, str]
    names: Names

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.made)

    @property
    def right(self) -> Any:
        return find_reference(self.reference)

    def __deepcopy__(self, memo: Any) -> "Kind":
        return self


@dataclass
class Construction:
    """How an object was made, and what was called on it since.

    Args:
        kind: its class.
        given: the arguments of its constructor themselves.
        form: of these arguments.
        parts: of these arguments, and of those of calls, as they were.
        names: the names of its tensors, by those in the object of the code; None: it is that.

    Attributes:
        computed: its tensors that are no parameters, as the constructor left them.
        calls: the state before each, its name, and the form of its arguments.
        latest: the names under which parts of its last call are kept, by those that they have now.
    """

    kind: Kind
    given: dict[str, Any]
    form: Any
    parts: Parts
    names: dict[str, str] | None = None
    computed: Parts = field(default_factory=dict)
    calls: list[tuple[Any, str, Any]] = field(default_factory=list)
    latest: dict[str, str] = field(default_factory=dict)

    def take_apart(self, value: Any, name: str, parts: Parts) -> "Life":
        """Note the parts of all that has happened to an object, and of its state now."""
        parts |= self.parts
        state = {
            key: take_apart(x, f"{name}.{key}", parts)
            for key, x in {**self.list_settings(value), **self.list_tensors(value)}.items()
            if key not in self.computed or not is_equal(x, self.computed[key])
        }
        return Life(kind=self.kind, given=self.form, calls=tuple(self.calls), state=state)

    def list_tensors(self, value: Any) -> Parts:
        """The tensors of an object: those that its constructor was given, and its own."""
        own = dict(_list_own(value))
        if self.names is not None:
            own = {ours: own[theirs] for ours, theirs in self.names.items()}
        given: Parts = {}
        for name, x in self.given.items():
            if made := find_construction(x):
                given |= {f"{name}.{key}": each for key, each in made.list_tensors(x).items()}
            else:
                take_apart(x, name, given)
        return {**own, **{key: x for key, x in given.items() if isinstance(x, Tensor) and not key.endswith(GRADIENT)}}

    @staticmethod
    def list_settings(value: Any) -> Parts:
        """The numbers of an object that others set."""
        settings: Parts = {"training": value.training} if isinstance(value, nn.Module) else {}
        for i, group in enumerate(value.param_groups if isinstance(value, torch.optim.Optimizer) else ()):
            settings |= {f"param_groups[{i}].{key}": x for key, x in group.items() if type(x) in (int, float)}
        return settings

    def note(self, parts: Parts, forms: Mapping[str, Any], method: str) -> None:
        """Note a call, by parts that are its own."""
        new = {name: x for name, x in parts.items() if name not in self.parts and name != FORM}
        for name in new:
            if not name.endswith(GRADIENT) and not self._is_unchanged(name, new):
                self.latest[name] = f"{name} of call {len(self.calls) + 1}"
        for name, x in new.items():
            base = name.removesuffix(GRADIENT)
            self.parts.setdefault(self.latest[base] + name.removeprefix(base), x)
        names = self.latest
        others = {name: _rename(form, names) for name, form in forms.items() if name != SELF}
        self.calls.append((_rename(forms[SELF]["state"], names), method, others))

    def _is_unchanged(self, name: str, parts: Parts) -> bool:
        before = self.latest.get(name)
        return before is not None and name + GRADIENT not in parts and is_equal(self.parts[before], parts[name])


class Life(Built):
    """All that has happened to an object: what it can be made again from."""

    def build(self, parts: Parts, is_reference: bool) -> Any:
        """Make the object, or its twin; nothing that this draws by chance is missing later."""
        kind: Kind = self["kind"]
        with keep_state():
            leaves = {name: _as_leaf(x) for name, x in parts.items()}
            given = put_together(self["given"], leaves, is_reference)
            bound = inspect.BoundArguments(kind.signature, given)
            value = (kind.right if is_reference else kind.made)(*bound.args, **bound.kwargs)
            made = find_construction(value)
            if made is None:
                made = vars(value)[MADE] = Construction(kind, given, self["given"], {}, {})
            for state, method, form in self["calls"]:
                _set_state(value, made, state, parts)
                arguments = put_together(form, parts, is_reference)
                signature = inspect.signature(getattr(kind.made, method))
                bound = inspect.BoundArguments(signature, {SELF: value, **arguments})
                getattr(value, method)(*bound.args[1:], **bound.kwargs)
            _set_state(value, made, self["state"], parts)
        return value


def find_reference(reference: tuple[str, str]) -> Any:
    """A function, a method or a class of the reference."""
    return reduce(getattr, reference[1].split("."), import_module(reference[0]))


def watch_making(kind: Kind) -> Any:
    """A constructor that also notes how an object was made."""
    make = kind.made.__init__

    @functools.wraps(make)
    def make_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
        args, kwargs = tuple(map(_hold, args)), {name: _hold(x) for name, x in kwargs.items()}
        made = None
        if type(self) is kind.made:
            with suppress(TypeError):  # of the constructor, too, which will tell
                bound = kind.signature.bind(*args, **kwargs)
                bound.apply_defaults()
                parts: Parts = {}
                form = {
                    name: take_apart(x, OF_INIT.format(name), parts, is_whole=True)
                    for name, x in bound.arguments.items()
                }
                parts = copy_parts({**parts, FORM: form})
                made = Construction(kind, dict(bound.arguments), parts.pop(FORM), parts)
        make(self, *args, **kwargs)
        if made and hasattr(self, "__dict__"):
            made.computed = {name: x.clone() for name, x in _list_own(self) if not isinstance(x, nn.Parameter)}
            vars(self)[MADE] = made

    return make_and_note


def _hold(x: Any) -> Any:
    """The parameters of a module as a list, which can be read twice."""
    is_torchs = isinstance(x, GeneratorType) and x.gi_code.co_filename == nn.modules.module.__file__
    return list(x) if is_torchs else x


def _list_own(value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors that an object has, those of a module with all that is in it."""
    if isinstance(value, nn.Module):
        yield from value.named_parameters()
        yield from value.named_buffers()
    elif not isinstance(value, torch.optim.Optimizer):
        parts: Parts = {}
        for name, x in vars(value).items():
            if name != MADE:
                take_apart(x, name, parts)
        yield from ((name, x) for name, x in parts.items() if isinstance(x, Tensor) and not name.endswith(GRADIENT))


def _as_leaf(x: Any) -> Any:
    return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x


def _rename(form: Any, names: Mapping[str, str]) -> Any:
    if isinstance(form, Slot):
        return Slot(names.get(form.name, form.name), form.restore)
    if isinstance(form, dict):
        new = type(form)(form)
        new.update({key: _rename(each, names) for key, each in form.items()})
        return new
    if type(form) in (list, tuple):
        return type(form)(_rename(each, names) for each in form)
    return form


def _set_state(value: Any, made: Construction, state: Mapping[str, Slot], parts: Parts) -> None:
    """Give an object the state that another one had."""
    wanted = {key: parts[slot.name] for key, slot in state.items()}
    if made.names is not None:
        made.names = _match_names(made, value, {key: x for key, x in wanted.items() if isinstance(x, Tensor)})
    tensors = made.list_tensors(value)
    for key, x in wanted.items():
        if key in tensors and isinstance(x, Tensor):
            gradient = parts.get(state[key].name + GRADIENT)
            _copy_into(tensors[key], x, gradient)
        elif key == "training":
            value.train(x)
        elif key.startswith("param_groups"):
            index, _, name = key.removeprefix("param_groups[").partition("].")
            value.param_groups[int(index)][name] = x


def _copy_into(tensor: Tensor, x: Tensor, gradient: Tensor | None) -> None:
    if tensor.shape != x.shape and tensor.shape == x.mT.shape:
        x, gradient = x.mT, None if gradient is None else gradient.mT
    with torch.no_grad():
        tensor.copy_(x)  # which counts as a change, as it would not by way of `tensor.data`
    if tensor.requires_grad:
        tensor.grad = None if gradient is None else gradient.clone()


def _match_names(made: Construction, twin: Any, ours: Parts) -> dict[str, str]:
    """Find out which parameter of a twin is which: by name, else in their order, by shape.

    Raises:
        UnlikeError: one of either has no counterpart.
    """
    own = dict(_list_own(twin))
    given = set(made.list_tensors(twin)) - set(made.names or ())
    names = {key: theirs for key in ours if key not in given and (theirs := made.kind.names.rename(key)) in own}
    left = {name: x for name, x in own.items() if name not in names.values() and isinstance(x, nn.Parameter)}
    for key, x in ours.items():
        if key in names or key in given or not isinstance(x, Tensor) or not x.requires_grad:
            continue
        alike = next((name for name, each in left.items() if sorted(each.shape) == sorted(x.shape)), None)
        if alike is None:
            raise UnlikeError(f"its parameter {key} is none of the reference's: {', '.join(left) or 'it has no more'}")
        names[key] = alike
        del left[alike]
    if left:
        raise UnlikeError(f"the reference's parameter {next(iter(left))} is none of its own")
    return names | (made.names or {})
