"""Recording the values of a student's expressions as they are computed, and replacing some of them."""

import ast
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._functorch import (
    _add_batch_dim,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    maybe_get_bdim,
    maybe_get_level,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from whichline.locate.deadline import Deadline

MOST_BYTES = 1 << 27  # of the copies that one call keeps
MOST_TIMES = 512  # events of an expression in one call; one with more events keeps no values
DEEPEST = 64  # depth of nested calls; deeper calls are not told apart
UNSET = re.compile(r"\brand|empty|Parameter$|normal_?$|uniform_?$")  # calls whose numbers will be overwritten
NUMBERS, LISTS, TENSORS = (int, float), (tuple, list), (Tensor, nn.Parameter)
ARRAYS = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression of the student's code, or a statement that changes a tensor in place."""

    file: str  # as Python knows it
    function: str  # its qualified name
    node: ast.expr | ast.stmt
    text: str  # as it stands in the file
    parameters: tuple[str, ...] = ()  # of the function
    in_place: bool = False  # whether its value is the tensor after a statement has changed it

    @property
    def line(self) -> int:
        return self.node.lineno

    @cached_property
    def called(self) -> str:
        """The text of the called function, or "" if this is no call."""
        return ast.unparse(self.node.func) if isinstance(self.node, ast.Call) else ""

    @cached_property
    def unpacks_arguments(self) -> bool:
        """Tell whether this is a call with `*args` or `**kwargs`, whose parts have no names."""
        call = self.node
        return isinstance(call, ast.Call) and (
            any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords)
        )

    @cached_property
    def is_read(self) -> bool:
        """Tell whether this is a name that is read."""
        return isinstance(self.node, ast.Name) and isinstance(self.node.ctx, ast.Load)

    @cached_property
    def is_unset(self) -> bool:
        """Tell whether this makes numbers that will be overwritten: random ones, or unwritten memory."""
        parts = (self.node.left, self.node.right) if isinstance(self.node, ast.BinOp) else (self.node,)
        return any(isinstance(each, ast.Call) and UNSET.search(ast.unparse(each.func)) for each in parts)

    @cached_property
    def is_unpacked(self) -> bool:
        """Tell whether this is a name into which one of several values is unpacked."""
        return isinstance(self.node, ast.Name) and isinstance(self.node.ctx, ast.Store)

    def __str__(self) -> str:
        return " ".join(self.text.split())


class TooLongError(BaseException):
    """A run does not end. This is no `Exception`, which the student's code might catch."""


@dataclass
class Recorder:
    """Records the value that each probe passes to it, in order, and replaces some of these values."""

    # by expression, a function that gets n and the n-th value and returns a replacement, or None to keep the value
    put: dict[Expression, Callable[[int, Any], Any]] = field(default_factory=dict)
    noting: bool = True  # whether values are recorded
    limit: int = 1_000_000  # events after which a run ends, since a replacement may cause an endless loop
    deadline: Deadline | None = None  # at which a run ends, since a replacement may be a huge size
    watch: Callable[[Expression], None] | None = None  # called with every expression
    # called with the frame and the arguments when a function begins; returns whether `answer` replaces the call
    enter: Callable[[FrameType, tuple[Any, ...]], bool] | None = None
    # called with the frame and the result when a function returns
    leave: Callable[[FrameType, Any], None] | None = None
    answer: Any = None
    answers: list[Any] = field(default_factory=list)  # those that took the place of calls
    looks: int = 0
    values: dict[Expression, list[Any]] = field(default_factory=dict)
    objects: dict[Expression, list[Any]] = field(default_factory=dict)  # the values themselves
    order: list[Expression] = field(default_factory=list)  # the expression of each event
    depths: list[int] = field(default_factory=list)  # how many calls deep each event was
    has_put: bool = False  # whether a value was replaced
    is_over: bool = False  # whether the call has ended: a later backward pass is not recorded
    broken: Exception | None = None  # an error of ours, which student code must not handle
    _bytes: int = 0
    _depth: int = 0
    _outermost: FrameType | None = None  # that calls the adapter
    _times: dict[Expression, int] = field(default_factory=dict)
    _kept: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # by a tensor's id: its version and a copy
    _arrays: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)  # by an array's id: it and its tensor

    def begin(self) -> None:
        """Begin another call of an adapter, without the values of the last one."""
        self.values, self.objects, self.order, self._times, self._kept, self._arrays = {}, {}, [], {}, {}, {}
        self.depths, self._bytes, self.is_over, self._outermost = [], 0, False, sys._getframe(1)
        self.answers = []

    def end(self) -> None:
        """Stop recording: the call has ended."""
        self.is_over, self._outermost = True, None

    def count_anew(self, places: Collection[Expression]) -> None:
        """Count the events of these expressions from 0 again, since another call of their function begins."""
        for place in places:
            self._times[place] = -1

    def look(self, place: Expression, value: Any) -> Any:
        """Record a value, and return it or its replacement. A search spends most of its time here."""
        self.looks += 1
        if self.looks > self.limit or (self.deadline and self.deadline.is_past):
            raise TooLongError
        if place not in self.put and (self.is_over or not (self.noting or self.watch)):
            return value
        if not self.is_over:
            self._depth = self._count_calls(sys._getframe(2))
            if self.watch:
                self.watch(place)
        if place.in_place:
            self._kept.clear()  # a change through `x.data`, or through an array, leaves the version as it is
        kind = type(value)
        if place.is_unpacked and kind is not int and kind is not Tensor:
            return value  # recorded where it was computed
        if isinstance(value, NUMBERS):
            return self._look(place, value)
        if kind is not Tensor and kind is not nn.Parameter and kind is not np.ndarray and not (kind in LISTS and value):
            is_made = isinstance(place.node, ast.Call) and (callable(value) or hasattr(value, "__dict__"))
            if is_made and self.noting and not self.is_over:
                self._append(place, None, value)  # a layer, a closure or another object
            return value
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # student code's modes
                return self._look_at_tensors(place, value)
        return self._look_at_tensors(place, value)

    def _count_calls(self, frame: FrameType | None) -> int:
        """Count how many calls deep a frame is, up to `DEEPEST`: in an endless recursion, more would take hours."""
        depth = 0
        while frame and frame is not self._outermost and depth < DEEPEST:
            frame, depth = frame.f_back, depth + 1
        return depth

    def _look_at_tensors(self, place: Expression, value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) in self._kept or is_plain(value):
                return self._look(place, value)
            return self._look_at_batch(place, value) if is_batchedtensor(value) else value
        if isinstance(value, np.ndarray):
            return self._look_at_array(place, value)
        if place not in self.put and self._is_full(place):
            return value  # a list that a loop makes longer is read as often as it is long
        if all(type(each) in TENSORS and is_plain(each) for each in value):
            looked = type(value)(self._look(place, each) for each in value)
            return looked if place in self.put else value  # the list itself, since other names may refer to it
        return value

    def _look_at_batch(self, place: Expression, value: Tensor) -> Tensor:
        """Record a tensor inside `vmap` as the tensor of the whole batch, along the first axis."""
        axis, level, inner = maybe_get_bdim(value), maybe_get_level(value), get_unwrapped(value)
        batch = inner.movedim(axis, 0) if axis else inner
        if is_batchedtensor(batch):
            new = self._look_at_batch(place, batch)
        else:
            with temporarily_clear_interpreter_stack():
                new = self._look_at_tensors(place, batch)
        return value if new is batch else _add_batch_dim(new, 0, level)

    def _look_at_array(self, place: Expression, value: Any) -> Any:
        """Record an array as the tensor that shares its memory."""
        if value.dtype.name not in ARRAYS:
            return value
        if id(value) not in self._arrays:
            is_shared = value.flags.writeable and all(stride >= 0 for stride in value.strides)
            self._arrays[id(value)] = value, torch.from_numpy(value if is_shared else value.copy())
        tensor = self._arrays[id(value)][1]
        new = self._look(place, tensor)
        return value if new is tensor else new.detach().numpy().astype(value.dtype)

    def _look(self, place: Expression, value: Any) -> Any:
        if self.noting and not self.is_over:
            try:
                self._note(place, value)
            except (RecursionError, MemoryError):
                raise
            except Exception as error:  # the student's code would take it for its own
                self.broken = self.broken or error
        if place not in self.put:
            return value
        time = self._times[place] = self._times.get(place, -1) + 1
        new = self.put[place](time, value)
        if new is None:
            return value
        self.has_put = True
        if place.in_place and isinstance(value, Tensor):
            return value.copy_(new)  # the same storage, since other names may refer to it
        return new

    def _append(self, place: Expression, kept: Any, value: Any) -> None:
        self.values.setdefault(place, []).append(kept)
        self.objects.setdefault(place, []).append(value)
        self.order.append(place)
        self.depths.append(self._depth)

    def _note(self, place: Expression, value: Any) -> None:
        if not self._is_full(place):
            self._append(place, self._keep(value), value)

    def _is_full(self, place: Expression) -> bool:
        """Tell whether an expression has had as many values as are kept; once there are more, none is."""
        values = self.values.get(place, [])
        if len(values) < MOST_TIMES:
            return False
        if values[-1] is not None:
            values[:] = [None] * MOST_TIMES
        return True

    def _keep(self, value: Any) -> Any:
        """Copy a value; return the last copy if nothing has changed the tensor, since names are read often."""
        if not isinstance(value, Tensor):
            return value
        if value.is_inference() or self._arrays:  # these have no version that counts
            return self._copy(value)
        now = value._version, value.data_ptr()  # `x.data = y` changes only the pointer
        version, kept = self._kept.get(id(value), (None, None))  # all tensors are held, so each id is of one
        if version != now:
            kept = self._copy(value)
            self._kept[id(value)] = now, kept
        return kept

    def _copy(self, value: Tensor) -> Tensor | None:
        """Copy a tensor, floating-point numbers in float64; None if too much is kept already."""
        self._bytes += value.numel() * 8
        if self._bytes > MOST_BYTES:
            return None
        value = torch.view_as_real(value.detach().resolve_conj()) if value.is_complex() else value.detach()
        dtype = torch.float64 if value.is_floating_point() else value.dtype
        return value.to("cpu", dtype, copy=True)


def is_plain(x: Tensor) -> bool:
    """Tell whether a tensor is dense and has its own numbers: not in `vmap`, sparse, quantized, nested or on meta."""
    is_dense = not is_functorch_wrapped_tensor(x) and x.layout is torch.strided
    return is_dense and not x.is_meta and not x.is_quantized and not x.is_nested
