"""Import a submission from memory, as if its files lay in the folder `ROOT`.

Python's own path machinery does the work, so folders without `__init__.py`, relative imports and a submission's own
`sys.path.append` behave as on the student's machine.

An import statement that fails binds a placeholder, which keeps the error and raises it when a graded call uses it. In a
`try` or a `with` the error is raised at once, as the student expects.
"""

import builtins
import dis
import importlib.metadata
import posixpath
import sys
import typing
from collections.abc import Callable
from functools import partial
from importlib.abc import PathEntryFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from traceback import walk_stack
from types import CodeType, FrameType, FunctionType, ModuleType, SimpleNamespace, TracebackType
from typing import Any, NoReturn

import typing_extensions

from whichline.rules.settings import keep_settings

ROOT = "/submission"

# The lab uses these packages, which take seconds to import; graded functions do not.
BLOCKED = ("matplotlib", "transformers")

missing: set[str] = set()
"""Packages that the submission imports and the sandbox lacks."""


def install(files: dict[str, bytes]) -> None:
    """Make the modules in `files` (path below the submission's root -> source) importable before all others."""
    sys.path_hooks.insert(0, partial(_Folder, {f"{ROOT}/{path}": source for path, source in files.items()}))
    sys.path[:0] = [ROOT, f"{ROOT}/src"]
    sys.modules.update(dict.fromkeys(BLOCKED))  # type: ignore[arg-type]  # None is how Python bars a module
    importlib.metadata.version = partial(_look_up, importlib.metadata.version, "0")
    importlib.metadata.requires = partial(_look_up, importlib.metadata.requires, None)
    # A newer Python has these names. typing_extensions recognises the version by TypeAliasType, so that one stays.
    for name in {*typing_extensions.__all__}.difference(dir(typing), ["TypeAliasType"]):
        setattr(typing, name, getattr(typing_extensions, name))
    builtins.__import__ = partial(_import, builtins.__import__, [*files])


def is_submitted(path: str) -> bool:
    """Tell whether a code object's file name or a `sys.path` entry lies in the submission."""
    return path == ROOT or path.startswith(f"{ROOT}/")


class _Folder(PathEntryFinder):
    def __init__(self, files: dict[str, bytes], path: str) -> None:
        self.files, self.path = files, posixpath.normpath(path)
        if not is_submitted(self.path):
            raise ImportError(f"{path} is not part of the submission")

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

    def exec_module(self, module: ModuleType) -> None:
        with keep_settings():
            super().exec_module(module)

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
            if error.filename is None:  # Python does not say which file has null bytes
                error.filename, error.lineno = path, 1
            error.msg += f" (the grader runs Python {sys.version.split()[0]})"  # the student's may be newer
            raise


def _look_up(known: Callable[[str], Any], unknown: Any, name: str) -> Any:
    """Look up the metadata of a package. A submission is not installed, so its own name gives `unknown`."""
    try:
        return known(name)
    except importlib.metadata.PackageNotFoundError:
        if not is_submitted(sys._getframe(1).f_code.co_filename):
            raise
        return unknown


def _import(known: Callable[..., Any], files: list[str], name: str, *more: Any, **options: Any) -> Any:
    """Import as Python does; a name that a statement of the submission cannot import becomes a placeholder."""
    frame = sys._getframe(1)
    names = (more[2] or ()) if _is_plain_import(frame) else "*"
    if "*" in names:  # nobody knows the names that a star would bind
        return known(name, *more, **options)
    try:
        module = known(name, *more)
    except BaseException as error:
        return _make_placeholder(files, frame, error, "" if names else name)
    taken = {}
    for each in names:
        try:
            taken[each] = _import_name(module, each)
        except BaseException as error:
            taken[each] = _make_placeholder(files, frame, error)
    return SimpleNamespace(**taken) if names else module


def _is_plain_import(frame: FrameType) -> bool:
    """Tell whether a frame is at an import statement of the submission, outside `try` and `with`."""
    code, at = frame.f_code, frame.f_lasti
    if not is_submitted(code.co_filename) or code.co_code[at] != dis.opmap["IMPORT_NAME"]:
        return False
    caught = dis.Bytecode(code).exception_entries  # pyright: ignore[reportAttributeAccessIssue]
    return not any(each.start <= at < each.end for each in caught)


def _import_name(module: Any, name: str) -> Any:
    """Take a name from a module as `from module import name` does, with the same errors."""
    scope: dict[str, Any] = {"__builtins__": {"__import__": lambda *_: module}}
    exec(f"from module import {name}", scope)  # noqa: S102
    return scope[name]


def _make_placeholder(files: list[str], frame: FrameType, error: BaseException, path: str = "") -> Any:
    """Make a placeholder; for `import a.b`, return `a` with a placeholder as its `b` if `a` can be imported."""
    traceback = TracebackType(error.__traceback__, frame, frame.f_lasti, frame.f_lineno)
    placeholder = Placeholder(_explain(files, error.with_traceback(traceback)))
    top, *below = path.split(".")
    module = package = sys.modules.get(top) if below else None
    for name in below if module else ():
        module = vars(module).setdefault(name, placeholder)
    return package or placeholder


def _explain(files: list[str], error: BaseException) -> BaseException:
    """Return the error; for a missing module, one that names the file of the submission that may be meant."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return error
    top, file = error.name.partition(".")[0], error.name.replace(".", "/") + ".py"
    is_own = any(path.removeprefix("src/").startswith(f"{top}/") for path in files)
    if sys.modules.get(top) and not is_own:
        return error  # a package has no such module
    text = f"No module named {error.name!r}: there is no {file} in what you handed in"
    if meant := sorted(path for path in files if path.endswith(f"/{posixpath.basename(file)}")):
        text += f"; is {meant[0]} meant?"
    elif not is_own:
        missing.add(top)
        text += " (is it in your package?), and the grader has no such package: graded functions must do without it"
    return ModuleNotFoundError(text, name=error.name).with_traceback(error.__traceback__)


class Placeholder:
    """Stands for what could not be imported, and for everything in it.

    While files are being imported, any use of it is allowed; in a graded call, any use raises the error.
    """

    __bases__ = ()  # passes for a class in `Float[Array, "a b"]`

    def __init__(self, error: BaseException) -> None:
        self.__error, self.__traceback = error, error.__traceback__
        self.__torch_function__ = self.__call__

    def __call__(self, *args: object, **kwargs: object) -> object:
        if not _is_importing():
            self.__fail()
        # A decorator of a missing package leaves the function as it is: `@nvtx.annotate("scores")`.
        decorates = isinstance(self.__error, ModuleNotFoundError) and len(args) == 1
        return args[0] if decorates and isinstance(args[0], FunctionType) else self

    def __fail(self, *args: object) -> NoReturn:
        raise self.__error.with_traceback(self.__traceback)

    def __getattr__(self, name: str) -> "Placeholder":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __bool__(self) -> bool:
        return self() is self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        inside = {"__init_subclass__": lambda cls, **kwargs: None, "__new__": lambda *args, **kwargs: self()}
        return (type("Placeholder", (), inside),)

    # Python wants a real value from these, so they raise even while modules are being imported.
    __len__ = __iter__ = __contains__ = __int__ = __float__ = __index__ = __instancecheck__ = __subclasscheck__ = __fail


for _name in (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "neg", "abs", "invert"),
    *("radd", "rsub", "rmul", "rmatmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rand", "ror", "rxor"),
    *("lt", "le", "gt", "ge", "getitem", "setitem"),
):
    setattr(Placeholder, f"__{_name}__", Placeholder.__call__)


def _is_importing() -> bool:
    """Tell whether a file of the submission is being imported: a line outside all functions is running."""
    running = (frame.f_code for frame, _ in walk_stack(sys._getframe()))
    return any(code.co_name == "<module>" and is_submitted(code.co_filename) for code in running)
