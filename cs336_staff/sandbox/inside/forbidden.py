"""The functions that students must write themselves, and a watch for calls of them.

What is forbidden gets another function in its place, which notes the call and goes on to the right one: each function
wherever torch keeps it, and each operator in torch's dispatcher, so that it is seen however it is reached. To watch
every operation instead would take as long as the student's own code.

Best effort: a submission can hide from it, since it runs in the same process.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

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
# torch has most operators as functions too.
FORBIDDEN |= {f"torch.{name}": getattr(torch, name) for name in dir(torch) if f"aten.{name}.".startswith(OPERATORS)}
MAX_CALLS = 20


class Watch:
    """The forbidden calls of the last call: name of the function -> file and line in the submission that reached it."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[str, int]] = {}
        self.active = self._inside = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a call of an adapter."""
        self.calls.clear()
        self.active = True
        try:
            yield
        finally:
            self.active = False

    def saw(self, name: str) -> None:
        if not self.active:
            return
        frame = sys._getframe(1)
        while frame is not None and not is_submitted(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None and len(self.calls) < MAX_CALLS:
            self.calls.setdefault(name, (frame.f_code.co_filename, frame.f_lineno))

    def install(self) -> torch.library.Library:
        """Put functions that tell this watch in the place of all that is forbidden, as long as the result lives."""
        watched = {
            id(function): self._watched(function, name)
            for name, function in FORBIDDEN.items()
            if _is_function(function)
        }
        for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "torch"]:
            for name, value in list(vars(module).items()):
                if id(value) in watched:
                    setattr(module, name, watched[id(value)])
        for name in ("softmax", "log_softmax"):
            setattr(torch.Tensor, name, watched[id(FORBIDDEN[f"torch.Tensor.{name}"])])
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there was a kernel before
            for operator in torch._C._dispatch_get_all_op_names():
                name = operator.replace("::", ".") if "." in operator else operator.replace("::", ".") + ".default"
                has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CPU")
                if name.startswith(OPERATORS) and has_kernel:
                    kernel = self._watched_kernel(torch.library.get_kernel(operator, "CPU"), name)
                    library.impl(operator.partition("::")[2], kernel, "CPU", with_keyset=True, allow_override=True)
        return library

    def _watched(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._inside or not self.active:
                return function(*args, **kwargs)
            self.saw(name)
            self._inside = True  # what torch's own function calls is no call of the submission's
            try:
                return function(*args, **kwargs)
            finally:
                self._inside = False

        del watched.__wrapped__
        return watched

    def _watched_kernel(self, kernel: Any, name: str) -> Callable[..., Any]:
        def watched(keys: Any, *args: Any, **kwargs: Any) -> Any:
            self.saw(name)
            return kernel.call_boxed(keys, *args, **kwargs)

        return watched


def _is_function(forbidden: Callable[..., Any]) -> bool:
    """Whether it is no class: a module is seen by the functions that it calls."""
    return not isinstance(forbidden, type)
