"""List the private names of torch and pytest that the engine and the grader use: a new release may take them away.

`uv run python -m staff.tools.private_names` prints each with the files that use it, and fails if one is gone.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pkgutil import resolve_name

from whichline_grader.paths import ENGINE, GRADER

PACKAGES = ("torch", "_pytest")


def find_private_names(tree: ast.AST) -> Iterator[str]:
    """The dotted names below these packages in which a part begins with one underscore."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        for name in names:
            parts = name.split(".")
            is_private = any(part[:1] == "_" != part[1:2] for part in parts)
            if is_private and parts[0] in PACKAGES and all(map(str.isidentifier, parts)):
                yield name


def is_there(name: str) -> bool:
    """Tell whether the installed package has this name."""
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


if __name__ == "__main__":
    used: defaultdict[str, set[str]] = defaultdict(set)
    for folder in (ENGINE, GRADER):
        for path in folder.rglob("*.py"):
            if "template" not in path.parts:
                for name in find_private_names(ast.parse(path.read_text(encoding="utf-8"))):
                    used[name].add(path.relative_to(folder.parent).as_posix())
    for name, files in sorted(used.items()):
        print(f"{name:<50} {', '.join(sorted(files))}")
    if gone := sorted(name for name in used if not is_there(name)):
        sys.exit(f"gone from the installed versions: {', '.join(gone)}")
