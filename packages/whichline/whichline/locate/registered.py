"""Registrations for the whole process: the copy has its own handlers and hooks, and shares the operators."""

import atexit
import copy
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_stack
from typing import Any
from unittest import mock

import torch
from torch._library import custom_ops
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch.library import Library
from torch.nn.modules import module
from torch.utils import _pytree

Entries = Any  # a list or a dict
DICTS = [
    *(value for name, value in vars(module).items() if name.startswith("_global") and isinstance(value, dict)),
    _pytree.SUPPORTED_NODES,
    _pytree.SUPPORTED_SERIALIZED_TYPES,
    _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE,
]
REGISTERS = (__file__, custom_ops.__file__, functools.__file__, torch.library.__file__)


class Registered:
    """The registrations of a copy of the student's code, which replace those of the code itself."""

    def __init__(self, is_students: Callable[[str], bool]) -> None:
        self.is_students = is_students  # tells whether a file is the student's
        self.own: list[tuple[Entries, Entries]] = []  # a registry, and the copy's entries
        self._others: dict[int, set[Any]] = {}  # by the id of a dict, the keys that are not the student's

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the registrations for a block, and restore them after it."""
        before = {id(each): (each, each.copy()) for each in _list_registries()}
        for each in DICTS:
            self._remove_students(each)
        for each, own in self.own:
            _replace(each, own)
        try:
            with _register_no_operators(self.is_students):
                yield
        finally:
            new = {id(each): (each, []) for each in _list_registries()}
            changed = [(each, were) for each, were in {**new, **before}.values() if each != were]
            self.own = [(each, _find_new(each, were)) for each, were in changed]
            for each, were in changed:
                each.clear()
                (each.update if isinstance(each, dict) else each.extend)(were)

    def _remove_students(self, entries: dict[Any, Any]) -> None:
        others = self._others.setdefault(id(entries), set())
        for key in entries.keys() - others:
            function = getattr(entries[key], "flatten_fn", entries[key])
            code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
            if code and self.is_students(code.co_filename):
                del entries[key]
            else:
                others.add(key)


def _list_registries() -> list[Entries]:
    loggers = _list_loggers(len(logging.Logger.manager.loggerDict))
    return [*DICTS, logging.root.handlers, *(each.handlers for each in loggers)]


@functools.lru_cache(1)
def _list_loggers(count: int) -> list[logging.Logger]:
    """List all loggers but torch's hundred, again only if their `count` changes."""
    loggers = logging.Logger.manager.loggerDict.items()
    return [each for name, each in loggers if isinstance(each, logging.Logger) and not name.startswith("torch.")]


def _find_new(entries: Entries, were: Entries) -> Entries:
    if isinstance(entries, dict):
        return {key: value for key, value in entries.items() if were.get(key) is not value}
    return [each for each in entries if each not in were]


def _replace(entries: Entries, own: Entries) -> None:
    """Add the copy's entries; each handler replaces one of its type, the student's."""
    if isinstance(entries, dict):
        entries.update(own)
        return
    for new in own:
        at = next((i for i, each in enumerate(entries) if type(each) is type(new) and each not in own), len(entries))
        entries[at : at + 1] = [new]


# Operators cannot be registered twice: the student's stay, and the copy uses them.


class _There(Library):
    """A library whose operators exist already."""

    def define(self, schema: str, *_: Any, **__: Any) -> str:
        name = schema.partition("(")[0].partition(".")[0].strip()
        if not hasattr(getattr(torch.ops, self.ns), name):
            raise RuntimeError(f"{self.ns}::{name} is registered with torch, which it was not the first time")
        return name


for _name in [name for name in vars(Library) if not name.startswith("__") and name != "define"]:
    setattr(_There, _name, lambda *_, **__: None)


def _is_asked(is_students: Callable[[str], bool]) -> bool:
    """Tell whether the student's code registers an operator, and not a module of torch's that it imports."""
    files = (frame.f_code.co_filename for frame, _ in walk_stack(sys._getframe(2)))
    return is_students(next(file for file in files if file not in REGISTERS))


@contextmanager
def _register_no_operators(is_students: Callable[[str], bool]) -> Iterator[None]:
    """Have registrations of operators find the existing ones, and ignore functions for the exit of Python."""
    make_library, make_operator = Library.__init__, CustomOpDef.__init__

    def find_library(self: Any, namespace: str, *more: Any, **named: Any) -> None:
        if _is_asked(is_students):
            self.__class__, self.ns = _There, namespace
        else:
            make_library(self, namespace, *more, **named)

    def find_operator(self: Any, namespace: str, name: str, *more: Any, **named: Any) -> None:
        if not _is_asked(is_students):
            return make_operator(self, namespace, name, *more, **named)
        library = Library(namespace, "FRAGMENT")
        there = OPDEFS.get(f"{namespace}::{library.define(name)}")
        own = {key: copy.copy(x) if isinstance(x, dict | set | list) else x for key, x in vars(there).items()}
        vars(self).update(own, _lib=library)
        return None

    with (
        mock.patch.object(Library, "__init__", find_library),
        mock.patch.object(CustomOpDef, "__init__", find_operator),
        mock.patch.object(atexit, "register", lambda run, *_, **__: run),
    ):
        yield
