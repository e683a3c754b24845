"""Running a function of the student's copy as a mutant."""

import gc
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType, FrameType, FunctionType, MappingProxyType
from typing import Any

from whichline.engine.suite import Test
from whichline.locate.mutants import Mutable, Mutant, find_code
from whichline.locate.named import span_of
from whichline.locate.observed import Observed, list_codes
from whichline.locate.options import Options
from whichline.locate.run import Runner, choose_kinds

KINDS = 4  # of tests; a mutant is tried on the shortest of these first
LEAST = 0.7  # of the lines that tests run without a mutant


class Function:
    """A function of the student's copy, which can run with the code of a mutant, and with replaced values beside it."""

    def __init__(self, runner: Runner, file: str, mutable: Mutable, patch: Options = MappingProxyType({})) -> None:
        self.runner, self.file, self.mutable, self.patch = runner, file, mutable, patch
        places = runner.observed.files[file].places if patch else []
        self._probed = {span_of(each.node): number for number, each in enumerate(places) if each in patch}
        self._imports, self._functions, self._made = -1, list[FunctionType](), list[FunctionType]()

    def passes(self, mutant: Mutant, tests: Sequence[Test], counts_lines: bool = True) -> bool:
        """Tell whether tests pass with a mutant; a test that limits memory cannot, since probes need memory.

        If lines are counted, nor do they if they then run far fewer: such a mutant only avoids the wrong code.
        """
        self.mutable.probed = self._probed
        code = self.mutable.compile(mutant, self.file)
        if code is None or not all(not test.memory and self._passes(code, test) for test in tests):
            return False
        if not counts_lines:
            return True
        own, few = self.mutable.compile_plainly(self.file), choose_kinds(tests, KINDS)
        return own is None or self._count_lines(code, few) >= LEAST * self._count_lines(own, few)

    def _count_lines(self, code: CodeType, tests: Sequence[Test]) -> int:
        """Count the lines of the student's that some tests run."""
        count, before = 0, sys.gettrace()

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal count
            count += event == "line"
            return trace if self.runner.observed.is_students(frame.f_code.co_filename) else None

        sys.settrace(trace)
        try:
            for test in tests:
                self._passes(code, test)
        finally:
            sys.settrace(before)
        return count

    def _passes(self, code: CodeType, test: Test) -> bool:
        self.runner.observed.refresh()
        own = self._find_functions()
        codes = [each.__code__ for each in (*own, *self._made)]
        inner = [find_code(code, each.__code__.co_qualname) or each.__code__ for each in self._made]
        own, new = [*own, *self._made], [*[code] * len(own), *inner]
        if any(len(one.co_freevars) != len(other.co_freevars) for one, other in zip(codes, new, strict=True)):
            return False  # it reads other names of enclosing functions, which Python refuses
        try:
            for each, its in zip(own, new, strict=True):
                each.__code__ = its
            self.runner.mutant_runs += 1
            if self.patch:
                beside = replace(self.runner, runs=0, looks=0)  # these runs have a budget of their own
                return beside.run(test, self.patch, noting=False).passed
            return self.runner.passes_as_is(test)
        finally:
            for each, before in zip(own, codes, strict=True):
                each.__code__ = before

    def _find_functions(self) -> list[FunctionType]:
        """Find all functions with this code, once for each import."""
        observed = self.runner.observed
        if self._imports != observed.imports:
            self._imports = observed.imports
            whole = observed.files[self.file].code
            code = find_code(whole, self.mutable.name) if whole else None
            named = _find_function(observed.find_namespace(self.file), self.mutable.name)
            if named and code in (named.__code__, None):  # the code of a lambda has no name
                self._functions = [named]
            else:  # a decorator hides it
                users = gc.get_referrers(code) if code else ()
                self._functions = [each for each in users if isinstance(each, FunctionType)]
            inner = list_codes(code)[1:] if code else ()
            self._made = [each for each in _list_closures(observed) if each.__code__ in inner] if inner else []
        return self._functions


def _list_closures(observed: Observed) -> Iterator[FunctionType]:
    """List the functions that the names in files and classes refer to: among them what decorators made."""
    for file in observed.files:
        for value in observed.find_namespace(file).values():
            inside = vars(value).values() if isinstance(value, type) else ()
            yield from (each for each in (value, *inside) if isinstance(each, FunctionType))


def _find_function(names: dict[str, Any], name: str) -> FunctionType | None:
    """Find a function, or a method, by its qualified name."""
    *classes, last = name.split(".")
    for each in classes:
        names = dict(vars(names.get(each, object)))
    value = names.get(last)
    value = getattr(value, "__func__", value)  # of a static or a class method
    value = inspect.unwrap(value) if callable(value) else None
    return value if isinstance(value, FunctionType) else None
