"""Objects whose class has a reference: how they were made, and which methods were called since.

The twin of an object is made by the reference's class from the same arguments, and gets the same calls. Before each
call it gets the object's state: weights, gradients, and whatever other code has set. An experiment makes both again and
repeats their calls.
"""

import copy
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
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
    list_arguments,
    put_together,
    take_apart,
)

SELF, OF_INIT = "self", "{} of __init__"
MOST_CALLS = 128  # of one object that are compared
MOST_NUMBERS = 1 << 26  # kept for these calls


class UnlikeError(Exception):
    """The parameters of an object do not match those of its twin; the message says which."""


@dataclass(frozen=True, eq=False)
class Kind:
    """A class of the code, and the one in the reference that has its name."""

    made: type  # the class of the code
    reference: tuple[str, str]  # module and name
    names: Names  # what has another name there

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.made)

    @property
    def right(self) -> Any:
        return find_reference(self.reference)

    def __deepcopy__(self, memo: Any) -> "Kind":
        return self


@dataclass(frozen=True, eq=False)
class Past:
    """A finished call of a method."""

    parts: Parts  # the object's state before it, and the arguments
    method: str

    def __deepcopy__(self, memo: Any) -> "Past":
        return self

    def repeat(self, value: Any, made: "Construction", is_reference: bool) -> None:
        """Make the same call of another object."""
        parts = {name: _as_leaf(x) for name, x in self.parts.items()}
        forms = parts[FORM]
        _set_state(value, made, forms[SELF], parts)
        others = {name: put_together(form, parts, is_reference) for name, form in forms.items() if name != SELF}
        signature = inspect.signature(getattr(made.kind.made, self.method))
        bound = inspect.BoundArguments(signature, {SELF: value, **others})  # type: ignore[arg-type]  (any dict)
        name = made.kind.names.rename(self.method) if is_reference else self.method
        getattr(value, name)(*bound.args[1:], **bound.kwargs)


@dataclass(eq=False)
class Construction:
    """How an object was made, and which calls it had since."""

    kind: Kind
    given: dict[str, Any]  # the arguments of its constructor themselves
    form: Any  # of these arguments
    parts: Parts  # of these arguments, as they were
    names: dict[str, str] | None = None  # of a twin: its tensors' names, by those in the object of the code
    computed: Parts = field(default_factory=dict)  # tensors other than parameters, as the constructor left them
    calls: list[Past] = field(default_factory=list)  # the finished ones
    twin: tuple[Any, int] = (None, 0)  # and how many calls it had
    kept: int = 0  # numbers in the calls

    @property
    def is_full(self) -> bool:
        return len(self.calls) >= MOST_CALLS or self.kept >= MOST_NUMBERS

    def take_apart(self, value: Any, name: str, parts: Parts) -> "Life":
        """Take an object's history and its present state apart."""
        parts |= self.parts
        tensors = self.list_tensors(value)
        present = {**self.list_settings(value), **tensors}
        changed = {key: x for key, x in present.items() if not is_equal(x, self.computed.get(key))}
        state = {key: take_apart(x, f"{name}.{key}", parts) for key, x in changed.items()}
        life = Life(kind=self.kind, given=self.form, calls=tuple(self.calls), state=state, tensors=tuple(tensors))
        life.made = self
        return life

    def list_tensors(self, value: Any) -> Parts:
        """Return the tensors of an object by name: those passed to its constructor, and its own."""
        own = dict(_list_own(value))
        if self.names is not None:
            own = {ours: own[theirs] for ours, theirs in self.names.items()}
        given = list_arguments(self.given)
        return {**own, **{key: x for key, x in given.items() if isinstance(x, Tensor) and not key.endswith(GRADIENT)}}

    @staticmethod
    def list_settings(value: Any) -> Parts:
        """Return the numbers that other code sets in an object: training mode, learning rate."""
        settings: Parts = {"training": value.training} if isinstance(value, nn.Module) else {}
        for i, group in enumerate(value.param_groups if isinstance(value, torch.optim.Optimizer) else ()):
            settings |= {f"param_groups[{i}].{key}": x for key, x in group.items() if type(x) in (int, float)}
        return settings

    def note(self, parts: Parts, method: str) -> None:
        """Record a call; parts that are equal in the last call are kept once."""
        last = self.calls[-1].parts if self.calls else self.parts
        new = {name: x for name, x in parts.items() if name not in last or not is_equal(x, last[name])}
        self.kept += sum(x.numel() for x in new.values() if isinstance(x, Tensor))
        self.calls.append(Past({**{name: last.get(name) for name in parts}, **new, FORM: parts[FORM]}, method))


class Life(Built):
    """The history of an object, from which it can be made again."""

    made: Construction | None = None  # of the object, if its twin is used; an experiment has none, and makes a new one

    def __deepcopy__(self, memo: Any) -> "Life":
        return Life(copy.deepcopy(dict(self), memo))

    def build(self, parts: Parts, is_reference: bool) -> Any:
        """Make the object, or return its twin or make that; other code's random numbers stay the same."""
        calls, live = self["calls"], self.made if is_reference else None
        value, had = live.twin if live else (None, 0)
        with keep_state():
            if value is None or had != len(calls):
                value = self._make(parts, is_reference)
            if live:
                live.twin = value, len(calls) + 1  # counts the call about to be made
            _set_state(value, find_construction(value), self, parts)
        return value

    def _make(self, parts: Parts, is_reference: bool) -> Any:
        kind: Kind = self["kind"]
        given = put_together(self["given"], {name: _as_leaf(x) for name, x in parts.items()}, is_reference)
        bound = inspect.BoundArguments(kind.signature, given)
        value = call_fitting(kind.right, bound, kind.names) if is_reference else kind.made(*bound.args, **bound.kwargs)
        if find_construction(value) is None:
            vars(value)[MADE] = Construction(kind, given, self["given"], {}, {})
        for call in self["calls"]:
            call.repeat(value, find_construction(value), is_reference)
        return value


def call_fitting(right: Any, bound: inspect.BoundArguments, names: Names) -> Any:
    """Call the reference; leave out arguments with their defaults, such as `device`, that it does not take."""
    theirs, own = inspect.signature(right), bound.signature.parameters
    args, kwargs = bound.args, dict(bound.kwargs)
    for name in reversed(bound.arguments):
        is_default = is_equal(bound.arguments[name], own[name].default)
        if _fits(theirs, args, kwargs) or not is_default or names.rename(name) in theirs.parameters:
            break
        if name in kwargs:
            del kwargs[name]
        else:
            args = args[:-1]
    return right(*args, **kwargs)


def _fits(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    with suppress(TypeError):
        return bool(signature.bind(*args, **kwargs))
    return False


def find_reference(reference: tuple[str, str]) -> Any:
    """Import a function, a method or a class of the reference."""
    return reduce(getattr, reference[1].split("."), import_module(reference[0]))


def watch_making(kind: Kind) -> Any:
    """Return a constructor that also records how the object was made."""
    make = kind.made.__init__

    @functools.wraps(make)
    def make_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
        args, kwargs = tuple(map(_hold, args)), {name: _hold(x) for name, x in kwargs.items()}
        made = None
        if type(self) is kind.made:
            with suppress(TypeError):  # which the constructor itself will raise
                bound = kind.signature.bind(*args, **kwargs)
                bound.apply_defaults()
                parts: Parts = {}
                given = bound.arguments.items()
                form = {name: take_apart(x, OF_INIT.format(name), parts, is_whole=True) for name, x in given}
                parts = copy_parts({**parts, FORM: form})
                made = Construction(kind, dict(bound.arguments), parts.pop(FORM), parts)
        make(self, *args, **kwargs)
        if made and hasattr(self, "__dict__"):
            made.computed = {name: x.clone() for name, x in _list_own(self) if not isinstance(x, nn.Parameter)}
            vars(self)[MADE] = made

    return make_and_note


def _hold(x: Any) -> Any:
    """Make a list, which can be read twice, of torch's generators of parameters; keep other values."""
    is_torchs = isinstance(x, GeneratorType) and x.gi_code.co_filename == nn.modules.module.__file__
    return list(x) if is_torchs else x


def _list_own(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and tensors of an object; of a module, with those of its submodules."""
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


def _set_state(value: Any, made: Construction, life: Mapping[str, Any], parts: Parts) -> None:
    """Give an object the state that is recorded in a life."""
    state: Mapping[str, Slot] = life["state"]
    wanted = {key: parts[slot.name] for key, slot in state.items()}
    if made.names is not None:
        ours = {key: x for key, x in wanted.items() if isinstance(x, Tensor)}
        made.names = _match_names(made, value, ours, life["tensors"])
    tensors = made.list_tensors(value)
    for key, x in wanted.items():
        if key in tensors and isinstance(x, Tensor):
            _copy_into(tensors[key], x, parts.get(state[key].name + GRADIENT))
        elif key == "training" and isinstance(value, nn.Module):
            value.train(x)
        elif key.startswith("param_groups"):
            index, _, name = key.removeprefix("param_groups[").partition("].")
            if isinstance(value, torch.optim.Optimizer):
                value.param_groups[int(index)][name] = x
            elif hasattr(value, name):
                setattr(value, name, x)


def _copy_into(tensor: Tensor, x: Tensor, gradient: Tensor | None) -> None:
    if tensor.dtype != x.dtype:
        tensor.data = tensor.data.to(x.dtype)
    if tensor.shape != x.shape and tensor.shape == x.mT.shape:
        x, gradient = x.mT, None if gradient is None else gradient.mT
    with torch.no_grad():
        tensor.copy_(x)  # not by `tensor.data`: autograd must count the change
    if tensor.requires_grad or gradient is not None:
        tensor.grad = None if gradient is None else gradient.clone()


def _match_names(made: Construction, twin: Any, ours: Parts, tensors: Sequence[str]) -> dict[str, str]:
    """Match the tensors of a twin with those of the object, by name; parameters else by shape, in order.

    The object's calls, or other code, changed `ours` in it; `tensors` are the names of all its tensors. UnlikeError if
    a parameter of one has no counterpart in the other.
    """
    own = dict(_list_own(twin))
    given = set(made.list_tensors(twin)) - set(made.names or ())
    renamed = {key: made.kind.names.rename(key) for key in dict.fromkeys((*ours, *tensors)) if key not in given}
    names = {key: theirs for key, theirs in renamed.items() if theirs in own}
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
