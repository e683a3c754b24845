"""The functions that students must write themselves, and a watch for calls of them.

Best effort: a submission can hide from it, since it runs in the same process.
"""

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from random import SystemRandom
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from cs336_staff.sandbox.inside.importing import is_submitted

FORBIDDEN: dict[str, Callable[..., Any]] = {
    "torch.softmax": torch.softmax,
    "torch.log_softmax": torch.log_softmax,
    "torch.special.softmax": torch.special.softmax,
    "torch.special.log_softmax": torch.special.log_softmax,
    "torch.Tensor.softmax": torch.Tensor.softmax,
    "torch.Tensor.log_softmax": torch.Tensor.log_softmax,
    "torch.nn.functional.softmax": nn.functional.softmax,
    "torch.nn.functional.log_softmax": nn.functional.log_softmax,
    "torch.nn.functional.softmin": nn.functional.softmin,
    "torch.nn.functional.gumbel_softmax": nn.functional.gumbel_softmax,
    "torch.sparse.softmax": torch.sparse.softmax,
    "torch.sparse.log_softmax": torch.sparse.log_softmax,
    "torch.nn.functional.linear": nn.functional.linear,
    "torch.nn.functional.scaled_dot_product_attention": nn.functional.scaled_dot_product_attention,
    "torch.nn.functional.multi_head_attention_forward": nn.functional.multi_head_attention_forward,
    "torch.nn.Softmax": nn.Softmax,
    "torch.nn.LogSoftmax": nn.LogSoftmax,
    "torch.nn.Softmin": nn.Softmin,
    "torch.nn.Linear": nn.Linear,
    "torch.nn.MultiheadAttention": nn.MultiheadAttention,
}
OPERATORS = (
    "aten._softmax.",
    "aten._log_softmax.",
    "aten._safe_softmax.",
    "aten._masked_softmax.",
    "aten._scaled_dot_product_",
    "aten._native_multi_head_attention.",
    "aten._transformer_encoder_layer_fwd.",
)
# torch has most operators as functions too, which are not seen as operators when Python calls them.
FORBIDDEN |= {f"torch.{name}": getattr(torch, name) for name in dir(torch) if f"aten.{name}.".startswith(OPERATORS)}
NAMES = {function: name for name, function in FORBIDDEN.items()}
MAX_CALLS = 20
# To see the operators a call takes three times as long, so not all of them are: the first of each adapter, and of the
# others a sample that a submission cannot foresee. Functions cost little, and are seen in every call.
FIRST_CALLS = 2
SAMPLED = 1 / 32


class Watch:
    """The forbidden calls of the last call: name of the function -> file and line in the submission that reached it."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[str, int]] = {}
        self._count: Counter[str] = Counter()
        self._random = SystemRandom()

    @contextmanager
    def watching(self, adapter: str) -> Iterator[None]:
        """Watch a call of `adapter`."""
        self.calls.clear()
        self._count[adapter] += 1
        closely = self._count[adapter] <= FIRST_CALLS or self._random.random() < SAMPLED
        with _Functions(self), _Operators(self) if closely else nullcontext():
            yield

    def saw(self, name: str) -> None:
        frame = sys._getframe(1)
        while frame is not None and not is_submitted(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None and len(self.calls) < MAX_CALLS:
            self.calls.setdefault(name, (frame.f_code.co_filename, frame.f_lineno))


@functools.cache
def _operator(operator: OpOverload | OpOverloadPacket) -> str | None:
    """Its name, if it is forbidden: "aten._softmax.default", or "aten._softmax." of all that are called that."""
    name = str(operator) if isinstance(operator, OpOverload) else f"{operator}."
    return name if name.startswith(OPERATORS) else None


class _Functions(TorchFunctionMode):
    """Sees what Python calls: functions, and operators by their own name."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in NAMES:
            self.watch.saw(NAMES[func])
        elif isinstance(func, OpOverload | OpOverloadPacket) and (name := _operator(func)):
            self.watch.saw(name)
        return func(*args, **kwargs or {})


class _Operators(TorchDispatchMode):
    """Sees operators, however they were reached."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to keep the compiler out costs as much as the call

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if name := _operator(func):
            self.watch.saw(name)
        return func(*args, **kwargs or {})
