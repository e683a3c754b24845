"""A second witness beside the watch: torch's own record of the operators that a call runs, by whatever name.

All roads into torch's kernels meet in its dispatcher, where a profiler notes every operator: also one that is called by
a name that no list has. It does not know the line, and sees neither what Python composes itself nor a kernel that is
called past the dispatcher; the watch does.
"""

import _thread
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch._C import _autograd
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

from cs336_kit.rules.forbidden import OPERATORS, home, operator_name

# In the inputs of a call that is recorded: the record takes 3 KB for each operator, and a program in nested loops runs
# many of those on large inputs.
MOST_NUMBERS = 4096
SWITCH, ENABLE, DISABLE = "_enable_record_function", "_enable_profiler_legacy", "_disable_profiler_legacy"
# What would stop the record, or tell that there is one.
TAKEN_AWAY = (
    *(SWITCH, ENABLE, DISABLE, "_enable_profiler", "_disable_profiler", "_prepare_profiler"),
    *("_profiler_enabled", "_profiler_type"),
)


class Record:
    """Records what runs in a call, in the threads that it starts, and backward.

    Attributes:
        operators: those of the last call that do the work of a problem, as they are written: "torch.ops.aten.linear".
    """

    def __init__(self) -> None:
        self.operators: set[str] = set()
        self._recorded = False  # whether a call is, now
        self._switch, self._enable, self._disable = (getattr(_autograd, name) for name in (SWITCH, ENABLE, DISABLE))
        self._config = ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, _ExperimentalConfig())

    def install(self) -> None:
        """Take away torch's profiler, and have new threads record too, for as long as the process runs."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "torch":
                for each in TAKEN_AWAY:
                    vars(module).pop(each, None)
        start = _thread.start_new_thread

        def start_recorded(function: Callable[..., Any], arguments: tuple[Any, ...], *more: Any) -> int:
            def run(*args: Any, **kwargs: Any) -> None:
                with self._recording():
                    function(*args, **kwargs)

            return start(run if self._recorded else function, arguments, *more)

        _thread.start_new_thread = threading._start_new_thread = start_recorded  # type: ignore[attr-defined]

    @contextmanager
    def of_call(self, recorded: bool) -> Iterator[None]:
        """Record a call, or not.

        Raises:
            RuntimeError: the call has stopped the record.
        """
        self.operators.clear()
        self._recorded = recorded
        try:
            with self._recording() if recorded else nullcontext():
                yield
        finally:
            self._recorded = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing in here."""
        self._switch(False)
        try:
            yield
        finally:
            self._switch(True)

    @contextmanager
    def _recording(self) -> Iterator[None]:
        self._enable(self._config)
        try:
            yield
        finally:
            events = self._disable()
            self.operators.update(name for thread in events for name in _works(thread))


def _works(events: Iterable[Any]) -> Iterator[str]:
    """The operators that do the work of a problem; of those that others run in doing so, none."""
    inside = 0
    for event in events:
        kind = event.kind()
        if kind == "pop":
            inside -= inside > 0
        elif kind == "push" and inside:
            inside += 1
        elif kind == "push" and (work := _work_of(event.name())):
            yield work
            inside = 1


@functools.cache
def _work_of(operator: str) -> str:
    """An operator as it is written, if it is forbidden and does the work of a problem; else nothing."""
    written = operator_name(operator)
    return written if written in OPERATORS and home(written) is not None else ""
