"""Undo what a student's file does to the whole process, on the student's machine as in grading.

Settings of torch also apply to the tests, so changes at import are undone. Compilers take longer than any test and
their code cannot be observed, so they return code as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# From the function of torch that changes a setting to the functions that read and restore it.
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "set_grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "set_default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "set_default_device": (
        torch.get_default_device,
        lambda x: torch.set_default_device(None if x.type == "cpu" else x),
    ),
}


@contextmanager
def keep_settings() -> Iterator[list[str]]:
    """Restore the settings after the block; the list then names the functions that changed them."""
    before = {name: read() for name, (read, _) in SETTINGS.items()}
    changed: list[str] = []
    try:
        yield changed
    finally:
        for name, (read, write) in SETTINGS.items():
            if read() != before[name]:
                changed.append(name)
                write(before[name])


def take_compilers_away() -> None:
    """Make torch.compile and torch.jit.script return their argument."""
    torch.compile = torch.jit.script = _skip_compiling  # type: ignore[assignment]


def _skip_compiling(code: Any = None, *_: Any, **more: Any) -> Any:
    """Return the function or module itself; a decorator with options returns a decorator that does."""
    code = more.get("model", more.get("obj", code))
    return _skip_compiling if code is None else code
