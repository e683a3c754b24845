"""Import a submission from memory, as if its files lay in the folder `ROOT`; stand in for packages that are missing.

It works through Python's own path machinery, so that folders without `__init__.py`, relative imports and a
submission's own `sys.path.append` do what they do on the student's machine.
"""

import ast
import linecache
import posixpath
import sys
from collections.abc import Collection, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder, PathEntryFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location, spec_from_loader
from types import FrameType, ModuleType

ROOT = "/submission"

# The lab of the assignment uses these. A graded function does not, and importing them takes seconds.
TAKEN_AWAY = {"matplotlib", "transformers"}


def install(files: dict[str, bytes]) -> None:
    """Make the modules in `files` (path below the submission's root -> source) importable, before all others."""
    absolute = {f"{ROOT}/{path}": source for path, source in files.items()}

    def hook(path: str) -> PathEntryFinder:
        if not is_submitted(path := posixpath.normpath(path)):
            raise ImportError(f"{path} is not part of the submission")
        return _Folder(path, absolute)

    sys.path_hooks.insert(0, hook)
    sys.path[:0] = [ROOT, f"{ROOT}/src"]
    sys.meta_path.insert(0, _Placeholders(only=TAKEN_AWAY))
    sys.meta_path.append(_Placeholders())


def is_submitted(path: str) -> bool:
    """Whether a code object's file name or a `sys.path` entry lies in the submission."""
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


missing: set[str] = set()
"""Packages that the submission imported and the sandbox lacks."""


class MissingPackageError(ImportError):
    """A package that the sandbox lacks was used, not just imported."""


class Placeholder(ModuleType):
    """Stands for a missing package and for all that is in it.

    A training script may import it, subclass it, decorate with it: while modules are imported anything goes. Once a
    function is called that needs it, the call fails.
    """

    def __getattr__(self, name: str) -> "Placeholder":
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")

    def __call__(self, *args: object, **kwargs: object) -> "Placeholder":
        if not any(frame.f_code.co_name == "<module>" for frame in _submitted_frames()):
            package = self.__name__.partition(".")[0]
            raise MissingPackageError(
                f"{self.__name__} was used, but the package {package} is not installed where submissions are graded; "
                f"importing {package} is fine, the graded functions must do without it"
            )
        return self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()


class _Placeholders(MetaPathFinder, Loader):
    """Serves the imports of a submission, not those of libraries. One comes last: no other finder knows the module."""

    def __init__(self, only: Collection[str] | None = None) -> None:
        self.only = only

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if self.only is not None and package not in self.only:
            return None
        if package not in missing:
            importer = _importer()
            if path is not None or importer is None:
                return None
            if _is_guarded(importer):
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
            missing.add(package)
        return spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _submitted_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_submitted(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _importer() -> FrameType | None:
    """The submission's frame that holds the import statement; None where a library imports, or only asks."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is not None and frame.f_globals.get("__name__") == "importlib":  # importlib.import_module
        frame = frame.f_back
    return frame if frame is not None and is_submitted(frame.f_code.co_filename) else None


def _is_guarded(frame: FrameType) -> bool:
    """Whether the frame's current line stands in a `try` that has an answer to a missing package."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try) and node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0):
            caught = ", ".join(ast.unparse(handler.type) if handler.type else "Exception" for handler in node.handlers)
            if any(name in caught for name in ("ImportError", "ModuleNotFoundError", "Exception")):
                return True
    return False
