"""A second import of the student's code, with a probe at every expression; the code that the tests ran is not touched.

While this copy runs, imports find it in place of the student's modules. Code that is in no file is not observed: a call
of it is one expression.
"""

import _imp
import builtins
import functools
import importlib
import inspect
import linecache
import math
import random
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from importlib._bootstrap import _lock_unlock_module, _module_locks  # type: ignore[attr-defined]  (of imports)
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import decode_source
from itertools import chain
from threading import get_ident
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch

from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.locate.initial_values import InitialValues
from whichline.locate.instrument import ANSWER, ENTER, LEAVE, PROBE, ProbedFile, instrument
from whichline.locate.kept import list_changed, list_kept
from whichline.locate.probe import Expression, Recorder
from whichline.locate.registered import Registered
from whichline.rules.settings import keep_settings

LONG = 1.0  # seconds; a longer import is measured by the clock, since it may wait for something
MOST_SECONDS = 2.0  # for the imports of one search; the first one is always made
Namespace = dict[str, Any]


@dataclass(frozen=True)
class Correction:
    """What was proved in one problem; the next ones, which may run the same code, try it first."""

    findings: Sequence[Finding]
    passes: Callable[[Any, Sequence[Test]], bool]  # gets a runner; tells whether all these tests pass with it


class CannotFollowError(Exception):
    """The student's code cannot be imported a second time."""


class Observed:
    """The student's code, imported once more when it is first needed.

    Args:
        adapters: what the tests call: a module, or functions by name.
        is_students: tells whether a file is the student's.
        cell: the file of a notebook's cell, of which only the definitions run again.

    Attributes:
        recorder: gets the values from the probes; without one they do nothing.
        imports: how often the code was imported.
        is_stale: whether the code keeps state between runs, and another import would take too long.
        unexplained: the crashes for which a search found no other place; in the next problem it would find none.
        corrections: what was proved in earlier problems, for the next ones.
    """

    def __init__(self, adapters: Any, is_students: Callable[[str], bool], cell: str = "") -> None:
        self.plain = adapters
        # A process has thousands of modules, some without a file.
        self.is_students = functools.cache(lambda file: bool(file) and is_students(file))
        self.cell = cell
        self.recorder: Recorder | None = None
        self.files: dict[str, ProbedFile] = {}
        self.imports = 0
        self.is_stale = False
        self.unexplained: set[object] = set()  # the crashes for which a search found no other place
        self.corrections: list[Correction] = []
        self._initial = InitialValues()
        self._fastest = math.inf
        self._is_keeping = False
        self._error: Exception | None = None
        self._loaded = 0
        self._students: dict[str, ModuleType] = {}
        self._names: dict[str, None] = {}  # of their modules, in the order of import
        self._modules: dict[str, ModuleType] = {}
        self._copies: dict[int, tuple[Namespace, Namespace]] = {}  # by id: a namespace and its copy

    @cached_property
    def adapters(self) -> Any:
        """The adapters of the copy."""
        self._import()
        return vars(self)["adapters"]

    @property
    def places(self) -> list[Expression]:
        _ = self.adapters
        return [place for file in self.files.values() for place in file.places]

    @property
    def definitions(self) -> dict[tuple[str, str], Any]:
        """The functions of all files, by file and qualified name."""
        _ = self.adapters
        return {(name, each): node for name, file in self.files.items() for each, node in file.definitions.items()}

    def find_namespace(self, file: str) -> Namespace:
        """Find the global names of a file, in the copy."""
        _ = self.adapters
        modules = (vars(each) for each in self._modules.values() if _find_file(each) == file)
        executed = (copy for _, copy in self._copies.values() if any(map(partial(_is_of, file), copy.values())))
        return next(chain(modules, executed), {})

    def is_own(self, value: Any) -> bool:
        """Tell whether a function or a class is defined in the copy."""
        module = getattr(value, "__module__", None)
        return module in self._names or any(copy.get("__name__") == module for _, copy in self._copies.values())

    def is_saved_since(self) -> bool:
        """Tell whether a file has changed since the tests imported it."""
        namespaces = [*map(vars, self._students.values()), *(plain for plain, _ in self._copies.values())]
        functions = [each for names in namespaces for each in names.values() if isinstance(each, FunctionType)]
        codes = {each.__code__ for each in functions if each.__code__.co_filename in self.files}
        now = {file: list_codes(compile(_read(file), file, "exec", dont_inherit=True)) for file in self.files}
        return any(code not in now[code.co_filename] for code in codes)

    @contextmanager
    def run(self, recorder: Recorder) -> Iterator[None]:
        """Pass the values of the probes to a recorder, and have imports find the copy.

        Raises:
            Exception: an error of ours in the recorder.
        """
        self.refresh()
        self.recorder = recorder
        try:
            with self._in_place(), self._initial.reused():
                yield
        finally:
            self.recorder = None
        if recorder.broken:
            raise recorder.broken

    def refresh(self) -> None:
        """Import the code again if it keeps state from an earlier run, and the import does not take long."""
        _ = self.adapters
        if self._is_keeping or not self.find_kept():
            return
        # the fastest: other imports may have met a busy machine, as the first one alone may
        self.is_stale = self._fastest * self.imports > MOST_SECONDS
        if not self.is_stale:
            self._import()

    def find_kept(self) -> list[str]:
        """List the names in the student's modules whose values have changed since the import."""
        namespaces = self._list_namespaces()
        return [] if self._state.is_as_it_was(namespaces) else list_changed(self._state, list_kept(namespaces))

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the state that the runs in this block leave behind."""
        self.refresh()
        self._is_keeping = True
        try:
            yield
        finally:
            self._is_keeping = False

    def _import(self) -> None:
        if self._error:
            raise self._error
        started, computed = time.perf_counter(), time.thread_time()
        late = self._modules  # imported during a run; these may keep state, too
        self._modules, self._copies, self._registered = {}, {}, Registered(self.is_students)
        try:
            with self._in_place():
                for name in {**self._students, **late}:
                    importlib.import_module(name)
                vars(self)["adapters"] = self._find_adapters()
        except (Exception, SystemExit) as error:
            why = f"the code cannot be imported a second time: {type(error).__name__}: {error}"
            self._error = CannotFollowError(why)
            raise self._error from error
        self.imports += 1
        seconds = time.perf_counter() - started
        seconds = seconds if seconds > LONG else time.thread_time() - computed
        self._fastest = min(self._fastest, seconds)
        self._state = list_kept(self._list_namespaces())

    def _list_namespaces(self) -> Mapping[Any, Namespace]:
        copies = {file: copy for file, (_, copy) in self._copies.items()}
        return {**{name: vars(module) for name, module in self._modules.items()}, **copies}

    def _find_adapters(self) -> Any:
        name = getattr(self.plain, "__name__", "")
        if name in self._students:
            return importlib.import_module(name)
        return SimpleNamespace(**{name: self._find_copy(name, value) for name, value in vars(self.plain).items()})

    def _find_copy(self, name: str, value: Any) -> Any:
        """Find the copy of a function; return the value itself if there is none."""
        function = inspect.unwrap(value) if isinstance(value, FunctionType | functools._lru_cache_wrapper) else None
        if not isinstance(function, FunctionType) or not self.is_students(function.__code__.co_filename):
            return value
        plain = function.__globals__
        copy = self._copy_namespace(plain, function.__code__.co_filename)
        return next((copy[each] for each in (value.__name__, name) if plain.get(each) is value and each in copy), value)

    def _copy_namespace(self, plain: Namespace, file: str) -> Namespace:
        """Copy a namespace: import its module, or, if it has none, execute its code again."""
        name = plain.get("__name__", "")
        if name in self._students and vars(self._students[name]) is plain:
            return vars(importlib.import_module(name))
        if id(plain) in self._copies:
            return self._copies[id(plain)][1]
        probed = self._instrument(file, _read(file), file == self.cell)
        kept = plain if file == self.cell else {each: plain[each] for each in plain if each.startswith("__")}
        copy = {each: type(x)(x) if type(x) in (list, dict, set) else x for each, x in kept.items()}
        copy["__builtins__"] = self._make_builtins(probed)
        self._copies[id(plain)] = plain, copy
        probed.code = probed.code or compile(probed.tree, file, "exec", dont_inherit=True)
        exec(probed.code, copy)  # noqa: S102 (the student's)
        return copy

    def _instrument(self, file: str, source: str, only_definitions: bool = False) -> ProbedFile:
        linecache.checkcache(file)
        probed = self.files[file] = instrument(file, source, only_definitions)
        return probed

    def _make_builtins(self, probed: ProbedFile) -> Namespace:
        """Add the probe to Python's builtins, so that the student's own namespaces stay as they are."""
        places = probed.places

        def probe(number: int, value: Any) -> Any:
            return value if self.recorder is None else self.recorder.look(places[number], value)

        def enter(given: tuple[Any, ...]) -> bool:
            recorder = self.recorder
            return recorder is not None and recorder.enter is not None and recorder.enter(sys._getframe(1), given)

        def leave(value: Any) -> Any:
            if self.recorder and self.recorder.leave:
                self.recorder.leave(sys._getframe(1), value)
            return value

        def answer() -> Any:
            assert self.recorder
            self.recorder.answers.append(self.recorder.answer)
            return self.recorder.answer

        return {**vars(builtins), PROBE: probe, ENTER: enter, ANSWER: answer, LEAVE: leave}

    # Python's protocol for finding and loading modules.

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module as the other finders do; a module of the student's gets its probes when it is loaded."""
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target))), None)
        if spec and self.is_students((spec.has_location and spec.origin) or _pick(spec.submodule_search_locations)):
            self._names[name] = None
            if isinstance(spec.loader, SourceLoader):
                spec.loader.create_module = self._create_module
                spec.loader.get_code = partial(self._get_code, spec.loader)  # type: ignore[method-assign]
        return spec

    def _create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        file = spec.origin or ""
        assert isinstance(spec.loader, SourceLoader)
        probed = self._instrument(file, decode_source(spec.loader.get_data(file)))
        vars(module)["__builtins__"] = self._make_builtins(probed)
        return module

    def _get_code(self, loader: SourceLoader, fullname: str) -> Any:
        file = loader.get_filename(fullname)
        probed = self.files[file]
        probed.code = probed.code or loader.source_to_code(probed.tree, file)  # type: ignore[arg-type]  (`compile` takes a tree)
        return probed.code

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Put the copy in place of the student's modules for a block, and restore everything after it."""
        if len(sys.modules) != self._loaded:  # a call may import some
            self._loaded = len(sys.modules)
            found = {name: each for name, each in list(sys.modules.items()) if self.is_students(_find_file(each))}
            self._students |= found
            self._names |= dict.fromkeys(found)
        students = self._swap(self._modules)
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]  (any object with `find_spec` will do)
        try:
            with keep_state(), self._registered.in_place():
                yield
        finally:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            self._modules = self._swap(students)

    def _swap(self, modules: Mapping[str, ModuleType]) -> dict[str, ModuleType]:
        """Replace the student's modules by these, and return the replaced ones."""
        with _hold_off_imports(self._names):
            before = {name: sys.modules.pop(name) for name in self._names if name in sys.modules}
            sys.modules.update(modules)
        for name in self._names:
            package, _, child = name.rpartition(".")
            if package in sys.modules and package not in self._names:  # a package of others
                if name in modules:
                    setattr(sys.modules[package], child, modules[name])
                else:
                    vars(sys.modules[package]).pop(child, None)
        return before


@contextmanager
def keep_state() -> Iterator[None]:
    """Restore the settings of torch, and the random numbers, after a block."""
    drawn, numpy = random.getstate(), sys.modules.get("numpy.random")  # only if imported: that takes time
    of_numpy = numpy.get_state() if numpy else None
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with keep_settings(), torch.random.fork_rng(devices=[]), eager:
        try:
            yield
        finally:
            random.setstate(drawn)
            if numpy:
                numpy.set_state(of_numpy)


@contextmanager
def _hold_off_imports(names: Collection[str]) -> Iterator[None]:
    """Wait until no other thread imports these modules, and hold off such imports for a block."""
    while True:
        _imp.acquire_lock()
        try:
            locks = [(name, _module_locks.get(name, lambda: None)()) for name in names]
            busy = [name for name, lock in locks if lock and lock.owner not in (None, get_ident())]
            if not busy:
                yield
                return
        finally:
            _imp.release_lock()
        for name in busy:
            _lock_unlock_module(name)


def list_codes(code: CodeType) -> list[CodeType]:
    """List a code object, and all code objects inside it."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return [code, *chain.from_iterable(map(list_codes, inner))]


def _read(file: str) -> str:
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


def _is_of(file: str, value: Any) -> bool:
    return isinstance(value, FunctionType) and value.__code__.co_filename == file


def _find_file(module: Any) -> str:
    """Find the file of a module, or its folder; "" if it has neither, as a stand-in for a module may."""
    names = getattr(module, "__dict__", None) or {}
    return str(names.get("__file__") or _pick(names.get("__path__")))


def _pick(folders: Any) -> str:
    return next(iter(folders or ()), "")
