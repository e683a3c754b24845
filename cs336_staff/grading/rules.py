"""Find in the source where a submission uses what students must write themselves.

Best effort, as everything that reads Python without running it; `cs336_staff/worker/forbidden.py` sees more.
"""

import ast
import warnings
from collections.abc import Iterator

from cs336_staff.grading.replies import Line, printable
from cs336_staff.grading.submission import Submission
from cs336_staff.worker.forbidden import FORBIDDEN

METHODS = {"softmax", "log_softmax"}


def find_forbidden(submission: Submission) -> list[Line]:
    """The lines that use a forbidden function of torch, in the adapters and all files that they import.

    `Line.function` is what is used, for example "torch.nn.functional.softmax". Files that do not parse have none.
    """
    found = []
    for path, tree in _reachable(submission):
        names = _imported_names(tree)
        for node in ast.walk(tree):
            if (name := _forbidden_name(node, names)) is not None:
                number = getattr(node, "lineno", 1)
                found.append(Line(path, number, name, printable(submission.line(path, number))))
    return sorted(set(found), key=lambda line: (line.file, line.number))


def _reachable(submission: Submission) -> Iterator[tuple[str, ast.Module]]:
    """The files that the adapters import, by way of other files too, and their syntax trees."""
    modules = {_module(path): path for path in submission.files}
    queue, seen = [submission.adapters], set[str]()
    while queue:
        module = queue.pop()
        if module in seen or module not in modules:
            continue
        seen.add(module)
        path = modules[module]
        try:
            with warnings.catch_warnings(action="ignore"):  # about the student's code
                tree = ast.parse(submission.files[path])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield path, tree
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        queue += _imports(tree, package)


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Every module that may be meant by an import, with the packages that it lies in."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for: `import torch.nn.functional as F` gives F -> torch.nn.functional."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                if alias.name == "*":
                    inside = (name.rpartition(".") for name in FORBIDDEN)
                    names |= {name: f"{module}.{name}" for module, _, name in inside if module == node.module}
                else:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name: meaning for name, meaning in names.items() if name not in defined}


def _forbidden_name(node: ast.AST, names: dict[str, str]) -> str | None:
    match node:
        case ast.Name() | ast.Attribute():
            dotted = _dotted(node, names)
            if dotted in FORBIDDEN:
                return dotted
        case ast.Call(func=ast.Attribute(value=value, attr=attribute)) if attribute in METHODS:
            # x.softmax(...) on what is neither an imported module nor the student's own object
            if _dotted(value, names) is None and not (isinstance(value, ast.Name) and value.id in ("self", "cls")):
                return f"torch.Tensor.{attribute}"
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(attribute)), *_]):
            dotted = f"{_dotted(value, names)}.{attribute}"
            if dotted in FORBIDDEN:
                return dotted
    return None


def _dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    """What a name or a chain of attributes stands for, if it starts from an imported name."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in names:
        return ".".join((names[node.id], *attributes))
    return None
