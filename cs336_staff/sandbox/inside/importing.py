"""Import a submission from memory, as if its files lay in the folder `ROOT`; stand in for what cannot be imported.

It works through Python's own path machinery, so that folders without `__init__.py`, relative imports and a
submission's own `sys.path.append` do what they do on the student's machine.

An import statement that fails gives placeholders, which raise what went wrong once a graded call uses them. So a
package that the sandbox lacks and a file that is broken cost only the problems that need them.
"""

import ast
import builtins
import linecache
import posixpath
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dis import opmap
from importlib.abc import PathEntryFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder, PackageNotFoundError
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace, TracebackType
from typing import Any, NoReturn

import typing_extensions

ROOT = "/submission"
PYTHON = "{}.{}".format(*sys.version_info)

# The lab of the assignment uses these. A graded function does not, and importing them takes seconds.
TAKEN_AWAY = {"matplotlib", "transformers"}

# What a syntax error and its line look like in an older Python. To look in more would take the square of the time.
MAX_SEARCHED = 1_000
NEWER_SYNTAX = {
    (3, 12): r"^\s*((async\s+)?def|class)\s+\w+\s*\[|^\s*type\s+\w+.*="
    r"|^f-string expression part cannot include"
    r"""|^f-string: (.|\n)*\bf(["'])((?!\4).)*\{((?!\4|\}).)*\4((?!\4).)*\4((?!\4).)*\}""",  # f"{scores["a"]}"
    (3, 14): r"^multiple exception types must be parenthesized",
}


def install(files: dict[str, bytes]) -> None:
    """Make the modules in `files` (path below the submission's root -> source) importable, before all others."""
    absolute = {f"{ROOT}/{path}": source for path, source in files.items()}

    def hook(path: str) -> PathEntryFinder:
        if not is_submitted(path := posixpath.normpath(path)):
            raise ImportError(f"{path} is not part of the submission")
        return _Folder(path, absolute)

    sys.path_hooks.insert(0, hook)
    sys.path[:0] = [ROOT, f"{ROOT}/src"]
    sys.meta_path.append(_Versions())
    builtins.__import__ = _Import(list(files))


def is_submitted(path: str) -> bool:
    """Tell whether a code object's file name or a `sys.path` entry lies in the submission."""
    return path == ROOT or path.startswith(f"{ROOT}/")


class _Folder(PathEntryFinder):
    def __init__(self, path: str, files: dict[str, bytes]) -> None:
        self.path, self.files = path, files

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        stem = f"{self.path}/{fullname.rpartition('.')[2]}"
        for path, folders in ((f"{stem}/__init__.py", [stem]), (f"{stem}.py", None)):
            if path in self.files:
                loader = _Source(path, self.files[path])
                return spec_from_file_location(fullname, path, loader=loader, submodule_search_locations=folders)
        if any(path.startswith(f"{stem}/") for path in self.files):
            namespace = ModuleSpec(fullname, None, is_package=True)
            namespace.submodule_search_locations = [stem]
            return namespace
        return None


class _Source(SourceLoader):
    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str) -> bytes:
        if path != self.path:
            raise OSError(f"{path} is not in the submission")
        return self.source

    def source_to_code(self, data: Any, path: Any, *more: Any, **options: Any) -> CodeType:  # type: ignore[override]
        try:
            return super().source_to_code(data, path, *more, **options)
        except SyntaxError as error:
            if needed := _newer_python(error):
                place = f"{self.path.removeprefix(f'{ROOT}/')}, line {error.lineno}"
                error.msg = f"this needs Python {needed} ({place}): the grader runs Python {PYTHON} ({error.msg})"
            raise


def _newer_python(error: SyntaxError) -> str | None:
    """The version that knows the syntax of this line, if one newer than this does."""
    text = f"{error.msg}\n{error.text}"[:MAX_SEARCHED]
    for version, pattern in NEWER_SYNTAX.items():
        if version > sys.version_info and re.search(pattern, text, re.MULTILINE):
            return "{}.{}".format(*version)
    return None


class _Versions(DistributionFinder):
    """`importlib.metadata.version` of what is not installed, where nothing in the submission is ready for that.

    A submission is not installed, so no name that it gives itself is known.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None

    def find_distributions(self, context: Any = None) -> Iterator[Distribution]:  # type: ignore[override]
        asking = sys._getframe(1)
        while asking.f_back is not None and asking.f_globals.get("__name__", "").startswith("importlib"):
            asking = asking.f_back
        if context.name and is_submitted(asking.f_code.co_filename) and not _is_expected(PackageNotFoundError()):
            yield _Version(context.name)


class _Version(Distribution):
    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        return f"Name: {self._name}\nVersion: 0\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Path:
        return Path(ROOT, path)


missing: set[str] = set()
"""Packages that the submission imported and the sandbox lacks."""


class MissingPackageError(ImportError):
    """A package that the sandbox lacks was used, not just imported."""


class Placeholder(ModuleType):
    """Stands for what could not be imported, and for all that is in it.

    A training script may import it, subclass it, decorate with it: while modules are imported anything goes. Once a
    graded call uses it, the call fails. A function decorated with what a missing package has stays what it is.
    """

    __bases__ = ()  # of something like a class, for `Float[Array, "a b"]`

    def __init__(self, name: str, failure: Callable[[str], BaseException], package: bool = False) -> None:
        super().__init__(name)
        self.__failure, self.__package = failure, package
        self.__torch_function__ = lambda *args, **kwargs: self()

    def __getattr__(self, name: str) -> "Placeholder":
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}", self.__failure, self.__package)

    def __call__(self, *args: object, **kwargs: object) -> object:
        if not _is_importing():
            self.__fail()
        decorates = self.__package and len(args) == 1 and isinstance(args[0], FunctionType)
        return args[0] if decorates else self

    def __bool__(self) -> bool:
        return bool(_is_importing() or self.__fail())

    def __fail(self, *args: object) -> NoReturn:
        raise self.__failure(self.__name__)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        inside: dict[str, Any] = {"__init_subclass__": lambda cls, **kwargs: None}
        if len(bases) == 1 or not self.__package:  # a mixin of a package may be done without
            inside["__new__"] = lambda *args, **kwargs: self()
        return (type("Placeholder", (), inside),)

    # What gives anything but a placeholder cannot stand in for anything, not even while modules are imported.
    __len__ = __iter__ = __contains__ = __int__ = __float__ = __index__ = __fail
    __instancecheck__ = __subclasscheck__ = __fail


for _name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Placeholder, f"__{_name}__", Placeholder.__call__)
    setattr(Placeholder, f"__r{_name}__", Placeholder.__call__)
for _name in ("lt", "le", "gt", "ge", "neg", "abs", "invert", "getitem", "setitem"):
    setattr(Placeholder, f"__{_name}__", Placeholder.__call__)


class _Import:
    """`__import__`, by which the import statements of a submission give placeholders where they fail."""

    def __init__(self, files: list[str]) -> None:
        self.files = files
        self.python = builtins.__import__

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        frame = sys._getframe(1)
        code = frame.f_code
        if not is_submitted(code.co_filename) or code.co_code[frame.f_lasti] != opmap["IMPORT_NAME"]:
            return self.python(name, globals, locals, fromlist or (), level)

        def load(*names: str) -> Any:
            return self.python(name, globals, locals, names, level)

        try:
            package = name.partition(".")[0]
            if package in TAKEN_AWAY and level == 0:
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
            if not fromlist or "*" in fromlist:
                return load(*fromlist or ())
            module = load("__name__")  # the module itself, and none of those in it
        except BaseException as error:  # whatever a file of the student's raises
            stand_in = self._stand_in(name, error, frame) if fromlist else self._attach(name, error, frame)
            if fromlist and "*" in fromlist and getattr(error, "name", None) not in missing:
                raise  # nobody knows which names it would give
            return stand_in
        if set(fromlist) <= getattr(module, "__dict__", {}).keys():
            return module
        found: dict[str, object] = {}
        for each in fromlist:
            try:
                found[each] = _member(load(each), each)
            except BaseException as error:
                newer = each if package in sys.stdlib_module_names else ""
                found[each] = getattr(typing_extensions, newer, None) or self._stand_in(
                    f"{module.__name__}.{each}", error, frame
                )
        return SimpleNamespace(**found)

    def _attach(self, name: str, error: BaseException, frame: FrameType) -> ModuleType:
        """Return what `import a.b.c` gives: `a`, and at the first module that is not there a placeholder."""
        top, *below = name.split(".")
        stand_in = self._stand_in(top, error, frame)
        module = loaded = sys.modules.get(top, stand_in)
        for each in below:
            path = f"{module.__name__}.{each}"
            if path not in sys.modules:
                setattr(module, each, self._stand_in(path, error, frame))
                break
            module = sys.modules[path]
        return loaded

    def _stand_in(self, name: str, error: BaseException, frame: FrameType) -> Placeholder:
        """For `name`, which the statement in `frame` could not import; raises `error` if the submission expects it."""
        if _is_expected(error):
            raise error
        place = TracebackType(error.__traceback__, frame, frame.f_lasti, frame.f_lineno)
        lacks = error.name if isinstance(error, ImportError) and error.name else ""
        top, last = lacks.partition(".")[0], lacks.rpartition(".")[2]
        own = [path.removesuffix(".py").removesuffix("/__init__").removeprefix("src/") for path in self.files]
        is_own = any(f"{path}/".startswith(f"{top}/") for path in own)
        elsewhere = sorted(path for path in own if path.endswith(f"/{last}"))
        not_found = isinstance(error, ModuleNotFoundError) and bool(lacks)
        if not_found and (is_own or (elsewhere and lacks == top)):
            hint = f"; is {elsewhere[0]}.py meant?" if elsewhere else ""
            text = f"{error}: there is no {lacks.replace('.', '/')}.py in what you handed in{hint}"
            explained = ModuleNotFoundError(text, name=lacks)
        elif is_own or not lacks:
            explained = error
        elif not_found and lacks == top:
            missing.add(top)
            return Placeholder(name, lambda used: _missing(used, top), package=True)
        else:
            in_python = top in sys.stdlib_module_names
            version = f"Python {PYTHON}" if in_python else f"{top} {getattr(sys.modules.get(top), '__version__', '')}"
            explained = ImportError(f"{error}: the grader has {version}", name=lacks)
        return Placeholder(name, lambda used: explained.with_traceback(place))


def _missing(used: str, package: str) -> MissingPackageError:
    return MissingPackageError(
        f"{used} was used, but there is no {package}.py in what you handed in (is it in cs336_basics?), and the "
        f"package {package} is not installed where submissions are graded: importing a package is fine, the graded "
        "functions must do without it"
    )


def _member(module: Any, name: str) -> Any:
    """`from module import name`, as Python does it."""
    try:
        return getattr(module, name)
    except AttributeError:
        if (submodule := sys.modules.get(f"{module.__name__}.{name}")) is not None:
            return submodule
        circular = " (does one of the two files import the other?)" if _is_half_imported(module) else ""
        text = f"cannot import name {name!r} from {module.__name__!r}{circular}"
        raise ImportError(text, name=module.__name__) from None


def _is_half_imported(module: Any) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _submitted_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_submitted(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _is_importing() -> bool:
    return any(frame.f_code.co_name == "<module>" for frame in _submitted_frames())


def _is_expected(error: BaseException) -> bool:
    """Tell whether some line of the submission that is running now is in a `try` that catches this error.

    A `try` around the import of a file does not expect that a package is missing which that file needs.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    for frame in _submitted_frames():
        if kinds & _caught(frame):
            return True
        if frame.f_code.co_name == "<module>" and isinstance(error, ModuleNotFoundError):
            return False
    return False


def _caught(frame: FrameType) -> set[str]:
    """The names in the `except` of each `try`, and in each `with`, around the frame's current line."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Try | ast.TryStar | ast.With):
            continue
        if node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0):
            catching = node.items if isinstance(node, ast.With) else [each.type for each in node.handlers]
            for each in catching:
                inside = ast.walk(each) if each else [ast.Name("BaseException")]
                names |= {getattr(part, "id", getattr(part, "attr", "")) for part in inside}
    return names
