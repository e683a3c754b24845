"""Undo changes of torch's settings for all code, and tell students which of their files made them."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whichline.rules.settings import keep_settings

INSTEAD = {
    "set_grad_enabled": "Write `with torch.no_grad():` around what needs no gradients.",
    "set_default_dtype": "Pass `dtype=` to what makes a tensor.",
    "set_default_device": "Pass `device=` to what makes a tensor.",
}
_undone: dict[tuple[str, str], None] = {}  # files, and the functions of torch that they called


@contextmanager
def undo_settings(file: str) -> Iterator[None]:
    """Undo the settings that the import of a file changes for all code, and remember them."""
    changed: list[str] = []
    try:
        with keep_settings() as changed:
            yield
    finally:
        _undone.update(dict.fromkeys((file, name) for name in changed))


def describe_undone(root: Path) -> list[str]:
    """A title, and lines that say which files change which setting and what to write instead; nothing if none does."""
    own = [(file, name) for file, name in _undone if root in Path(file).parents]
    lines = ["Undone when your files had been imported, here and in grading"] if own else []
    for file, name in own:
        line = _find_line(file, name)
        place = f"{Path(file).relative_to(root).as_posix()}{f':{line}' * bool(line)}"
        lines.append(f"{place}: torch.{name} changes a setting for all code, the tests included. {INSTEAD[name]}")
    return lines


def _find_line(file: str, name: str) -> int:
    """The last line of a file that names this function of torch's; 0 if none does."""
    nodes = ast.walk(ast.parse(Path(file).read_bytes()))
    called = (node for node in nodes if isinstance(node, ast.Name | ast.Attribute))
    return max((node.lineno for node in called if ast.unparse(node).endswith(name)), default=0)
