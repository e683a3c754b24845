"""Functions and methods of the code, paired with their references; the modules of both, imported with probes."""

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from whichline.locate.observed import Namespace, Observed, keep_state
from whichline.plain import Names
from whichline.plain.objects import SELF, Kind, call_fitting, find_reference, watch_making
from whichline.plain.parts import FORM, Parts, find_construction, list_outputs, put_together, take_apart
from whichline.rules.pairing import list_parameters

CALLED = ("__call__", "__getitem__", "__len__", "__next__")
NO_OBJECTS = (BaseException, Enum, tuple, type, torch.autograd.Function)


class Followed(Observed):
    """Packages and modules that are imported once, with probes, and that tests, fixtures and code share.

    `replace` is called with each top-level function and class, and returns its replacement.
    """

    def __init__(self, names: Sequence[str], replace: Callable[[Any], Any] = lambda value: value) -> None:
        super().__init__(SimpleNamespace(), lambda file: False)
        self.names, self.replace = names, replace
        self._sources: set[str] = set()
        self.is_students = self._sources.__contains__
        self.is_imported = False
        vars(self)["adapters"] = self.plain

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module as the other finders do; one of these modules gets its probes when it is loaded."""
        if find_entry(name, self.names) is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target))), None)
        if spec and spec.origin and isinstance(loader := spec.loader, SourceLoader):
            loader.exec_module = partial(self._execute, loader.exec_module)  # type: ignore[method-assign]
            self._sources.add(spec.origin)
            loader.create_module = self._create_module
            loader.get_code = partial(self._get_code, loader)  # type: ignore[method-assign]
        return spec

    def _execute(self, run: Callable[[ModuleType], None], module: ModuleType) -> None:
        run(module)
        self.is_imported = True
        for name, value in list(vars(module).items()):
            is_own = isinstance(value, FunctionType | type) and value.__module__ == module.__name__
            if is_own and value.__qualname__ == name:
                setattr(module, name, self.replace(value))

    def refresh(self) -> None:
        """Do nothing: the tests keep the modules."""

    def find_namespace(self, file: str) -> Namespace:
        return next((vars(each) for each in sys.modules.values() if getattr(each, "__file__", "") == file), {})

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        with keep_state():
            yield


@dataclass
class Paired:
    """A function or a method of the code, paired with the one in the reference that has its name."""

    name: str  # with its module
    function: FunctionType  # of the code
    reference: tuple[str, str]  # module and name
    names: Names  # what has another name in the reference
    kind: Kind | None = None  # the class of a method
    given: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # the arguments themselves, while a test calls it
    came: Any = None  # what its last call returned
    is_bare: bool = False  # whether that is a tensor; the reference may return it in a tuple
    changed: set[str] = field(default_factory=set)  # the parts of its arguments that the reference changed in some call

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def right(self) -> Callable[..., Any]:
        return find_reference(self.reference)

    @property
    def has_right(self) -> bool:
        """Tell whether the reference's class has this method, too."""
        return self.kind is None or hasattr(self.kind.right, self.function.__name__)

    @property
    def is_found_by_code(self) -> bool:
        """Tell whether its code shows its parameters, and its class: a method of a base class has several."""
        is_own = self.kind is None or self.function.__qualname__.startswith(f"{self.kind.made.__qualname__}.")
        return is_own and list_parameters(self.code) == tuple(self.signature.parameters)

    def call_right(self, bound: inspect.BoundArguments) -> Any:
        """Call the reference's function, or the twin's method."""
        if self.kind is None:
            return call_fitting(self.right, bound, self.names)
        twin, *args = bound.args
        return getattr(twin, self.reference[1].rpartition(".")[2])(*args, **bound.kwargs)

    @property
    def code(self) -> CodeType:
        return inspect.unwrap(self.function).__code__

    @property
    def key(self) -> tuple[str, str]:
        """The file and the qualified name of its code."""
        return self.code.co_filename, self.code.co_qualname

    def read(self, arguments: Mapping[str, Any]) -> Parts:
        """Take arguments apart, into their parts and their form; TypeError if nobody saw how the object was made."""
        if self.kind and not find_construction(arguments[SELF]):
            raise TypeError("it was called while its object was made")
        parts: Parts = {}
        form = {name: take_apart(value, name, parts, is_whole=True) for name, value in arguments.items()}
        return {**parts, FORM: form}

    def is_compared(self, args: Sequence[Any]) -> bool:
        """Tell whether a call is compared; that of a method is if the object's earlier calls are kept."""
        if self.kind is None:
            return True
        made = find_construction(args[0]) if args else None
        return made is not None and not made.is_full and self.has_right

    @staticmethod
    def has_calls_before(parts: Mapping[str, Any]) -> bool:
        """Tell whether these parts belong to a later call of an object."""
        return bool(parts.get(FORM, {}).get(SELF, {}).get("calls"))

    @staticmethod
    def list_past(parts: Mapping[str, Any]) -> Parts:
        """Return the tensors that were passed to earlier calls of the same object, by name."""
        calls = enumerate(parts[FORM].get(SELF, {}).get("calls", ()), 1)
        found = [(f"`{name}` of call {i}", x) for i, call in calls for name, x in call.parts.items()]
        return dict({id(x): (name, x) for name, x in reversed(found) if isinstance(x, Tensor)}.values())

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Parts:
        """Take the arguments of a call apart."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self.read(bound.arguments)

    def write(self, parts: Parts, is_reference: bool = False) -> inspect.BoundArguments:
        """Put arguments together from their parts; for the reference, with objects of its own classes."""
        bound = inspect.BoundArguments(self.signature, {})  # type: ignore[arg-type]  (any dict)
        bound.arguments.update({name: put_together(form, parts, is_reference) for name, form in parts[FORM].items()})
        return bound

    def note(self, args: Sequence[Any], parts: Parts) -> None:
        """Record a call of a method, since later calls depend on the state that it leaves."""
        if self.kind:
            find_construction(args[0]).note(parts, self.function.__name__)

    def __call__(self, **parts: Any) -> Any:
        """Call the code's function and return its output tensors; a single one without a tuple."""
        if self.given:
            args, kwargs = self.given
            arguments = self.signature.bind(*args, **kwargs).arguments
        else:
            bound = self.write(parts)
            args, kwargs, arguments = bound.args, bound.kwargs, bound.arguments
        self.given = None
        self.came = self.function(*args, **kwargs)
        outputs = tuple(list_outputs(self.came, arguments, self.changed).values())
        return outputs[0] if len(outputs) == 1 else outputs


Route = Callable[[Paired, tuple[Any, ...], dict[str, Any]], Any]


class Functions:
    """All functions of `code` that have a reference; they are paired when their modules are imported.

    `route` makes the calls of a test, but not the calls inside these.
    """

    def __init__(self, code: Sequence[str], reference: str, names: Names) -> None:
        self.reference_name, self.names = reference, names
        self.paired: dict[str, Paired] = {}
        self.route: Route | None = None
        self._is_inside = False
        self.code = Followed(code, self._pair)
        self.reference = Followed([reference])

    @contextmanager
    def routing(self, route: Route) -> Iterator[None]:
        """Have `route` make the calls of a test in this block."""
        self.route, self._is_inside = route, False
        try:
            yield
        finally:
            self.route = None

    def describe_unpaired(self) -> str:
        """Say why a test calls no function that has a reference."""
        if not self._defined:
            what = f"The reference {self.reference_name} cannot be found"
            return f"{what}, which [tool.whichline] in pyproject.toml names."
        if not self.code.is_imported:
            names = ", ".join(self.code.names)
            return f"The tests import nothing of {names}, which [tool.whichline] in pyproject.toml names as the code."
        return "This test calls no function that has a reference of the same name."

    def _pair(self, value: FunctionType | type) -> Any:
        """Wrap a function, or the methods of a class, so that `route` makes their calls, if there is a reference."""
        reference = self._find_reference(value.__module__, value.__name__)
        if reference is None:
            return value
        if isinstance(value, FunctionType):
            return self._route(value, reference)
        if not issubclass(value, NO_OBJECTS):
            self._pair_class(value, reference)
        return value

    def _pair_class(self, value: type, reference: tuple[str, str]) -> None:
        kind = Kind(value, reference, self.names)
        value.__init__ = watch_making(kind)  # type: ignore[misc]
        for name, method in self._list_methods(value):
            if isinstance(method, FunctionType) and (name in CALLED or not name.startswith("__")):
                of_twin = reference[0], f"{reference[1]}.{self.names.rename(name)}"
                setattr(value, name, self._route(method, of_twin, kind))

    def pair_returned(self, value: Any, right: Any) -> bool:
        """Pair a class that a function returns with the one that its reference returns; tell whether that is new."""
        if not isinstance(value, type) or not isinstance(right, type) or issubclass(value, NO_OBJECTS):
            return False
        is_known = any(each.kind and each.kind.made is value for each in self.paired.values())
        if is_known or not find_entry(value.__module__, self.code.names) or "<locals>" in right.__qualname__:
            return False
        self._pair_class(value, (right.__module__, right.__qualname__))
        return True

    def _list_methods(self, kind: type) -> list[tuple[str, Any]]:
        """List the methods of a class, with those of its bases that have no reference."""
        bases = [each for each in kind.__mro__[1:] if find_entry(each.__module__, self.code.names)]
        alone = [each for each in bases if self._find_reference(each.__module__, each.__name__) is None]
        return list({name: x for each in (*reversed(alone), kind) for name, x in vars(each).items()}.items())

    def _route(self, function: FunctionType, reference: tuple[str, str], kind: Kind | None = None) -> Any:
        owner = f"{kind.made.__qualname__}.{function.__name__}" if kind else function.__qualname__
        name = f"{kind.made.__module__ if kind else function.__module__}.{owner}"
        paired = self.paired[name] = Paired(name, function, reference, self.names, kind)
        setattr(self.code.adapters, paired.name, paired)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.route is None or self._is_inside or not paired.is_compared(args):
                return function(*args, **kwargs)
            self._is_inside = True
            try:
                return self.route(paired, args, kwargs)
            finally:
                self._is_inside = False

        return call

    def _find_reference(self, module: str, name: str) -> tuple[str, str] | None:
        """Find the reference's function or class by module and name, or by name if only one has it."""
        name = self.names.rename(name)
        homes = [each for each, functions in self._defined.items() if name in functions]
        entry = find_entry(module, self.code.names) or module
        below = module.removeprefix(entry) or f".{module.rpartition('.')[2]}"
        found = [each for each in homes if each == self.reference_name + below] or homes
        return (found[0], name) if len(found) == 1 else None

    @cached_property
    def _defined(self) -> dict[str, set[str]]:
        """The top-level functions and classes of each module of the reference."""
        try:
            spec = find_spec(self.reference_name)
        except ModuleNotFoundError:  # of its parent package
            spec = None
        if spec is None:
            return {}
        files = {self.reference_name: Path(spec.origin)} if spec.origin else {}
        for folder in map(Path, spec.submodule_search_locations or ()):
            for path in sorted(folder.rglob("*.py")):
                parts = [part for part in path.relative_to(folder).with_suffix("").parts if part != "__init__"]
                files[".".join((self.reference_name, *parts))] = path
        return {name: _list_names(path) for name, path in files.items() if path.suffix == ".py"}


def _list_names(path: Path) -> set[str]:
    body = ast.parse(path.read_bytes()).body
    assigned = (target for each in body if isinstance(each, ast.Assign) for target in each.targets)
    defined = (each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef))
    return {*defined, *(each.id for each in assigned if isinstance(each, ast.Name))}


def find_entry(module: str, names: Sequence[str]) -> str | None:
    """Find the package or module, of some, to which a module belongs."""
    return next((each for each in names if module == each or module.startswith(f"{each}.")), None)
