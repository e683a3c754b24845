"""A watch for calls of what students must write themselves.

What is forbidden gets another function in its place, which goes on to the right one and notes the call: each function
wherever torch keeps it, the `forward` of each layer, the operators in `torch.ops`, and in torch's dispatcher those that
other functions of torch end in. So a call is seen however it is reached, and code without one runs as before.

Best effort: code that runs in the same process can hide from it.
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

from whichline.rules.forbidden import Forbidden, operator_name

MAX_USES = 10  # of functions with the same home, in one call
KEYS = ("CPU", "SparseCPU", "NestedTensorCPU")  # under which the dispatcher keeps what computes on a CPU


@dataclass(frozen=True, order=True)
class Use:
    """A forbidden function that ran, and the student's line that ran it."""

    file: str
    number: int
    function: str
    source: str = ""

    def __str__(self) -> str:
        if not self.source:
            return f"{self.function} (on which line is not known)"
        return f"{self.function} in {self.file}:{self.number}: {self.source}"


class Watch:
    """Sees which forbidden functions a student's code runs, once it is installed.

    Args:
        rules: what is forbidden.
        is_students: whether a file, as it is named in a code object, is the student's.
        whole_call: whether all that runs while it watches is the student's, so that a forbidden function counts even
            where no line of the student's is on the stack: an adapter may be torch's own function.

    Attributes:
        uses: what the last call that was watched has run, without the source.
    """

    def __init__(self, rules: Forbidden, is_students: Callable[[str], bool], whole_call: bool = False) -> None:
        self.rules = rules
        self.is_students = is_students
        self.whole_call = whole_call
        self.uses: set[Use] = set()
        self._prepared: set[int] = set()
        self._thread: int | None = None  # that makes the call that is watched
        self._torch = threading.local()  # `runs`: whether the thread is inside of a forbidden function

    @contextmanager
    def watching(self, *functions: Any) -> Iterator[None]:
        """Watch a call, and the threads that it starts.

        What the import statements in these functions name is imported before: the top of a file is not part of a call.
        """
        self.uses.clear()
        for function in functions:
            if id(function) not in self._prepared:
                self._prepared.add(id(function))
                import_what_it_names(function)
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None

    def install(self) -> None:
        """Put functions that tell this watch in the place of all that is forbidden, for as long as the process runs."""
        watched = {id(function): self._watched(function, name) for name, function in self.rules.functions.items()}
        places: list[dict[Any, Any]] = [*global_decomposition_table.values()]
        places += [vars(module) for name, module in sys.modules.items() if name.partition(".")[0] == "torch"]
        for place in places:
            for name, value in list(place.items()):
                if id(value) in watched:
                    place[name] = watched[id(value)]
        for name, function in self.rules.functions.items():
            if name.startswith("torch.Tensor."):
                setattr(Tensor, function.__name__, watched[id(function)])
        methods = [(of, key, self._watched(getattr(of, key), name)) for name, (of, key) in self.rules.methods.items()]
        for of, key, method in methods:
            setattr(of, key, method)
        for kind in (OpOverload, OpOverloadPacket, HigherOrderOperator):
            kind.__call__ = self._watched_operator(kind.__call__)  # type: ignore[method-assign]
        self._watch_dispatcher()

    def _watch_dispatcher(self) -> None:
        """Watch what the work of some problems ends in, also where only torch's own C++ asks for it."""
        self._library = torch.library.Library("aten", "IMPL")  # what is put into it lives as long as it does
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there was a kernel before
            for operator in torch._C._dispatch_get_all_op_names():
                namespace, _, name = operator.partition("::")
                written = operator_name(operator)
                if (
                    namespace != "aten"
                    or written not in self.rules.operators
                    or self.rules.home(written) not in self.rules.in_kernels
                ):
                    continue
                for key in KEYS:
                    if torch._C._dispatch_has_kernel_for_dispatch_key(operator, key):
                        kernel = self._watched_kernel(torch.library.get_kernel(operator, key), written)
                        self._library.impl(name, kernel, key, with_keyset=True, allow_override=True)

    def _watched(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._is_idle():
                return function(*args, **kwargs)
            return self._run(name, function, args, kwargs)

        del watched.__wrapped__
        return watched

    def _watched_operator(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def watched(operator: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self._is_idle():
                return call(operator, *args, **kwargs)
            name = operator_name(str(operator))
            if name not in self.rules.operators:
                return call(operator, *args, **kwargs)
            return self._run(name, call, (operator, *args), kwargs)

        return watched

    def _watched_kernel(self, kernel: Any, name: str) -> Callable[..., Any]:
        def watched(keys: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._is_idle():
                self._note(name)
            return kernel.call_boxed(keys, *args, **kwargs)

        return watched

    def _is_idle(self) -> bool:
        """Test whether no call is watched, or this one is made by a function of torch that is noted already."""
        return self._thread is None or getattr(self._torch, "runs", False)

    def _run(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a forbidden function, and note it unless it hands back an argument as it was: dropout that is off."""
        # A subclass could say that it has not changed.
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
        place = self._students_line(sys._getframe(1))
        if place is None and threading.get_ident() != self._thread:
            # A thread that was given torch's own function: whoever waits for it is to blame.
            place = self._students_line(sys._current_frames().get(self._thread or 0))
        if self.whole_call:
            place = place or ("", 0)
        home = self.rules.home
        if place is not None and Counter(home(use.function) for use in self.uses)[home(name)] < MAX_USES:
            self.uses.add(Use(*place, name))

    def _students_line(self, frame: FrameType | None) -> tuple[str, int] | None:
        while frame is not None and not self.is_students(frame.f_code.co_filename):
            frame = frame.f_back
        return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def import_what_it_names(function: Any) -> None:
    """Import what the import statements in a function name; one that fails is left to the call."""
    with suppress(Exception):  # a student's object may be anything
        function = inspect.unwrap(function)
        for module, names, level in _find_imports(function.__code__):
            with suppress(Exception, SystemExit):
                __import__(module, function.__globals__, None, names, level)


def _find_imports(code: CodeType) -> Iterator[tuple[str, tuple[str, ...] | None, int]]:
    """The module of each import statement in a function, the names taken from there, and the dots before it."""
    last = deque[Any](maxlen=2)  # what the instructions before have put on the stack
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            level, names = last
            yield each.argval, names, level
        last.append(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _find_imports(inner)
