"""What students must write themselves: the evidence that a submission took it from torch.

Two sources. The watch in the sandbox (`inside/forbidden.py`) saw a graded call use it. Or it is read in the
source, as a syntax tree, in what the graded function reaches by name: its own body, and the functions, classes and
constants that it mentions, in whichever file they are. Both cost the points of the problem whose tests called that
function. Any other use in the source, in a training script or in a check of one's own, costs nothing: no graded number
came from it. It is a remark for staff, who see the line and decide.

Best effort, as everything that reads Python without running it, or that runs beside what it watches.
"""

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cs336_staff.sandbox.inside.forbidden import FORBIDDEN, OPERATORS
from cs336_staff.sandbox.replies import Line, printable
from cs336_staff.sandbox.submission import Submission

METHODS = {"softmax", "log_softmax"}
MAX_BYTES = 1 << 18  # of source that is read: a hostile megabyte takes eight seconds and 1.6 GiB of ours
MAX_ATTRIBUTES = 16
MAX_PLACES = 20_000  # names that a graded function reaches, each in its module
MAX_SHOWN = 3  # a hostile worker chooses the lines that it reports, and could spell hidden inputs with them


def judge(
    submission: Submission, seen: Mapping[str, set[Line]], called: Mapping[str, set[str]]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The evidence against each problem that there is any against, and remarks for staff.

    Args:
        submission: what is graded.
        seen: for each problem, what the watch saw while its tests ran.
        called: for each problem, the functions of the adapters that its tests called.
    """
    source = Source(submission)
    written = source.forbidden()
    reached = {problem: source.reached(functions) if written else [] for problem, functions in called.items()}
    charged = {problem: shown([*seen.get(problem, ()), *reached[problem]]) for problem in called}
    places = {(line.file, line.number) for lines in (*seen.values(), *reached.values()) for line in lines}
    elsewhere = (line for line in written if (line.file, line.number) not in places)
    remarks = [f"no graded call reaches {line}" for line in shown(elsewhere)]
    remarks += [f"{path} is too large, or no Python: not read" for path in source.unread[:MAX_SHOWN]]
    return {problem: tuple(lines) for problem, lines in charged.items() if lines}, tuple(remarks)


def shown(lines: Iterable[Line]) -> list[str]:
    """Each use of a forbidden function with file, line and source, the first ones of many."""
    names: dict[tuple[str, int, str], str] = {}
    for line in lines:
        known = [line.function] if line.function in FORBIDDEN else [o for o in OPERATORS if line.function.startswith(o)]
        place = (line.file, line.number, line.source)
        if known and line.source and names.get(place) not in FORBIDDEN:
            names[place] = known[0].rstrip("._")
    places = sorted(names.items())[:MAX_SHOWN]
    return [f"{name} in {file}:{number}: {source}" for (file, number, source), name in places]


@dataclass(frozen=True)
class _Module:
    """A file: the nodes of its tree, what imported names stand for, what it defines, what it imports with a star."""

    path: str
    nodes: list[ast.AST]
    names: dict[str, str]
    defined: dict[str, list[ast.stmt]]
    stars: list[str]


class Source:
    """The adapters of a submission and every file that they import.

    Attributes:
        unread: files that do not parse, or are more than `MAX_BYTES` together; the adapters, if too much is reached.
    """

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.unread: list[str] = []
        self._modules: dict[str, _Module] = {}
        paths = {_module(path): path for path in submission.files}
        queue, room = [submission.adapters], MAX_BYTES
        while queue:
            name = queue.pop()
            if name not in paths or name in self._modules or paths[name] in self.unread:
                continue
            path = paths[name]
            room -= len(submission.files[path])
            tree = _parsed(submission.files[path]) if room >= 0 else None
            if tree is None:
                self.unread.append(path)
                continue
            package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
            nodes = list(ast.walk(tree))
            names, stars, imported = _imports(nodes, package)
            self._modules[name] = _Module(path, nodes, names, _defined(tree.body), stars)
            queue += imported

    def forbidden(self) -> list[Line]:
        """Every line that uses a forbidden function; `Line.function` is which, as "torch.nn.functional.softmax"."""
        return self._lines((module, node) for module in self._modules.values() for node in module.nodes)

    def reached(self, functions: Iterable[str]) -> list[Line]:
        """Those that these functions of the adapters reach."""
        seen: set[tuple[str, str]] = set()
        queue: list[tuple[str, str]] = []
        walked: set[ast.stmt] = set()
        nodes: list[tuple[_Module, ast.AST]] = []

        def visit(places: Iterable[tuple[str, str]]) -> None:
            new = {place for place in places if place[0] in self._modules} - seen
            seen.update(new)
            queue.extend(new)

        visit((self.submission.adapters, name) for name in functions)
        while queue and len(seen) < MAX_PLACES:
            module_name, name = queue.pop()
            module = self._modules[module_name]
            if name in module.names:
                visit(_split(module.names[name]))
            visit((star, name) for star in module.stars)
            for statement in module.defined.get(name, []):
                if statement in walked:  # it defines other names too
                    continue
                walked.add(statement)
                for node in ast.walk(statement):
                    nodes.append((module, node))
                    if isinstance(node, ast.Name):
                        visit([(module_name, node.id)])
                    elif dotted := _dotted(node, module.names):
                        visit(_split(dotted))
        if queue and self._modules[self.submission.adapters].path not in self.unread:
            self.unread.append(self._modules[self.submission.adapters].path)
        return self._lines(nodes)

    def _lines(self, nodes: Iterable[tuple[_Module, ast.AST]]) -> list[Line]:
        found = set()
        for module, node in nodes:
            if (name := _forbidden_name(node, module.names)) is not None:
                number = getattr(node, "lineno", 1)
                found.add(Line(module.path, number, name, printable(self.submission.line(module.path, number))))
        return sorted(found, key=lambda line: (line.file, line.number, line.function))


def _split(dotted: str) -> Iterator[tuple[str, str]]:
    """`package.module.function.attribute` as the module and what is meant in it."""
    parts = dotted.split(".", MAX_ATTRIBUTES)
    for n in range(1, min(len(parts), MAX_ATTRIBUTES)):
        yield ".".join(parts[:n]), parts[n]


def _parsed(source: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # about the student's code
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(nodes: list[ast.AST], package: str) -> tuple[dict[str, str], list[str], list[str]]:
    """What each imported name stands for, which modules are imported with a star, and all that may be modules.

    `import torch.nn.functional as F` gives F -> torch.nn.functional.
    """
    names: dict[str, str] = {}
    stars, imported = [], []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
                imported.append(alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join(filter(None, (*above, node.module)))
            for alias in node.names:
                if alias.name == "*":
                    stars.append(base)
                    inside = (name.rpartition(".") for name in FORBIDDEN)
                    names |= {name: f"{module}.{name}" for module, _, name in inside if module == base}
                else:
                    names[alias.asname or alias.name] = f"{base}.{alias.name}"
            imported += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names = {name: meaning for name, meaning in names.items() if name not in functions}
    modules = [name.split(".", MAX_ATTRIBUTES)[:MAX_ATTRIBUTES] for name in imported]
    packages = {".".join(parts[:n]) for parts in modules for n in range(1, len(parts) + 1)}
    return names, stars, sorted(packages)


def _defined(body: Iterable[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The statements at the top of a module that give a name its meaning, also in `if` and `try`."""
    defined: dict[str, list[ast.stmt]] = {}
    queue = list(body)
    while queue:
        statement = queue.pop()
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                defined.setdefault(name, []).append(statement)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                for target in targets:
                    for node in ast.walk(target):
                        if isinstance(node, ast.Name):
                            defined.setdefault(node.id, []).append(statement)
            case ast.If() | ast.Try() | ast.With():
                queue += [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
                queue += [node for handler in getattr(statement, "handlers", []) for node in handler.body]
    return defined


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
    while isinstance(node, ast.Attribute) and len(attributes) <= MAX_ATTRIBUTES:
        attributes.insert(0, node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in names:
        return ".".join((names[node.id], *attributes))
    return None
