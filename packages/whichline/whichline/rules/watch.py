"""Watch for calls of forbidden functions.

Each one is replaced by a wrapper that notes the call: functions wherever torch keeps them, the `forward` of layers, the
operators in `torch.ops`, and the kernels in torch's dispatcher that other functions end in. So a call is seen whatever
its name, and code without one runs as before.

Best effort: code in the same process can hide from it.
"""

import dis
import functools
import inspect
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import global_decomposition_table
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from whichline.rules.forbidden import Forbidden, name_operator

MAX_USES = 10  # of functions that do the same problem's work, in one watched call
KEYS = ("CPU", "SparseCPU", "NestedTensorCPU")  # the dispatcher's keys of CPU kernels


@dataclass(frozen=True, order=True)
class Use:
    """A forbidden function that ran, and the student's line that called it."""

    file: str
    number: int
    function: str
    source: str = ""

    def __str__(self) -> str:
        if not self.source:
            return f"{self.function} (on an unknown line)"
        return f"{self.function} in {self.file}:{self.number}: {self.source}"


class Watch:
    """Notes the forbidden functions that a student's code runs, once it is installed.

    With `whole_call`, also if no line of the student's is on the stack, since an adapter may be torch's own function.
    """

    def __init__(self, rules: Forbidden, is_students: Callable[[str], bool], whole_call: bool = False) -> None:
        self.rules, self.is_students, self.whole_call = rules, is_students, whole_call
        self.uses: set[Use] = set()  # the forbidden functions that the last watched call ran, without the source
        self._prepared: set[int] = set()
        self._thread: int | None = None  # the thread that makes the watched call
        self._torch = threading.local()  # `runs`: whether the thread is inside a forbidden function

    @contextmanager
    def watching(self, *functions: Any) -> Iterator[None]:
        """Watch a call and the threads that it starts.

        Modules that these functions import are imported first: the top of a file is not part of a call.
        """
        self.uses.clear()
        for function in functions:
            if id(function) not in self._prepared:
                self._prepared.add(id(function))
                import_modules_of(function)
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None

    def install(self) -> None:
        """Replace all that is forbidden by wrappers, until the process ends."""
        watched = {id(function): self._wrap(function, name) for name, function in self.rules.functions.items()}
        places: list[dict[Any, Any]] = [*global_decomposition_table.values()]
        places += [vars(module) for name, module in sys.modules.items() if name.partition(".")[0] == "torch"]
        for place in places:
            place.update({name: watched[id(value)] for name, value in place.items() if id(value) in watched})
        for name, function in self.rules.functions.items():
            if name.startswith("torch.Tensor."):
                setattr(Tensor, function.__name__, watched[id(function)])
        methods = [(of, key, self._wrap(getattr(of, key), name)) for name, (of, key) in self.rules.methods.items()]
        for of, key, method in methods:
            setattr(of, key, method)
        for kind in (OpOverload, OpOverloadPacket, HigherOrderOperator):
            kind.__call__ = self._wrap_operator(kind.__call__)  # type: ignore[method-assign]
        self._watch_dispatcher()

    def _watch_dispatcher(self) -> None:
        """Watch the kernels of some problems' work, which torch's own C++ code can call."""
        self._library = torch.library.Library("aten", "IMPL")  # the wrappers live as long as this object
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about replaced kernels
            for operator in torch._C._dispatch_get_all_op_names():
                namespace, _, name = operator.partition("::")
                written = name_operator(operator)
                is_watched = namespace == "aten" and written in self.rules.operators
                if not is_watched or self.rules.find_problem(written) not in self.rules.in_kernels:
                    continue
                for key in KEYS:
                    if torch._C._dispatch_has_kernel_for_dispatch_key(operator, key):
                        kernel = self._wrap_kernel(torch.library.get_kernel(operator, key), written)
                        self._library.impl(name, kernel, key, with_keyset=True, allow_override=True)

    def _wrap(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if self._is_idle() else self._run(name, function, args, kwargs)

        del watched.__wrapped__
        return watched

    def _wrap_operator(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def watched(operator: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self._is_idle():
                return call(operator, *args, **kwargs)
            name = name_operator(str(operator))
            if name not in self.rules.operators:
                return call(operator, *args, **kwargs)
            return self._run(name, call, (operator, *args), kwargs)

        return watched

    def _wrap_kernel(self, kernel: Any, name: str) -> Callable[..., Any]:
        def watched(keys: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_idle():
                self._note(name)
            return kernel.call_boxed(keys, *args, **kwargs)

        return watched

    def _is_idle(self) -> bool:
        """Tell whether no call is watched, or this call comes from a forbidden function, which is noted itself."""
        return self._thread is None or getattr(self._torch, "runs", False)

    def _run(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a forbidden function; note it unless it returns an argument unchanged, as dropout that is off does."""
        # Plain tensors only: a subclass could pretend to be unchanged.
        plain = [x for x in (*args, *kwargs.values()) if type(x) in (Tensor, nn.Parameter) and not x.is_inference()]
        given = [(x, x._version) for x in plain]
        self._torch.runs = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._torch.runs = False
        if not any(result is x and x._version == v for x, v in given):
            self._note(name)
        return result

    def _note(self, name: str) -> None:
        place = self._find_students_line(sys._getframe(1))
        if place is None and threading.get_ident() != self._thread:
            # A thread that runs torch's own function: blame the line that waits for it.
            place = self._find_students_line(sys._current_frames().get(self._thread or 0))
        if self.whole_call:
            place = place or ("", 0)
        find = self.rules.find_problem
        if place is not None and Counter(find(use.function) for use in self.uses)[find(name)] < MAX_USES:
            self.uses.add(Use(*place, name))

    def _find_students_line(self, frame: FrameType | None) -> tuple[str, int] | None:
        while frame is not None and not self.is_students(frame.f_code.co_filename):
            frame = frame.f_back
        return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def import_modules_of(function: Any) -> None:
    """Run the import statements in a function; one that fails will fail again in the call."""
    with suppress(Exception):  # a student's object may be anything
        function = inspect.unwrap(function)
        for module, names, level in _find_imports(function.__code__):
            with suppress(Exception, SystemExit):
                __import__(module, function.__globals__, None, names, level)


def _find_imports(code: CodeType) -> Iterator[tuple[str, tuple[str, ...] | None, int]]:
    """List for each import statement in a function its module, the names from there, and the number of dots."""
    last = deque[Any](maxlen=2)  # the latest values that instructions put on the stack
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            level, names = last
            yield each.argval, names, level
        last.append(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _find_imports(inner)
