"""What a student's file cannot change for everybody else: at home it is the same as in grading.

Settings of torch hold for the whole process, the tests included: what an import makes of them is undone. Compilers take
longer than any test, and nobody sees into what they make: what they are asked to compile stays as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# By the function of torch that changes it, how a setting is read and put back.
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
    """Put the settings back when the block ends; the list then names the functions that would change them."""
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
    """Have torch.compile and torch.jit.script return what they are given."""
    torch.compile = torch.jit.script = _not_compiled  # type: ignore[assignment]


def _not_compiled(code: Any = None, *_: Any, **more: Any) -> Any:
    """The function or the module itself; to be called with it, where it stands above a `def` with options."""
    code = more.get("model", more.get("obj", code))
    return _not_compiled if code is None else code
