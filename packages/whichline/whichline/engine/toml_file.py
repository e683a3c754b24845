"""Read TOML files that people edit into dataclasses; every key and type is checked, and a complaint names the line.

The dataclass is the schema: fields without a default are required, unknown keys are refused, and only a `Signed`
number may be negative.
"""

import dataclasses
import difflib
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from whichline.engine.errors import CourseworkError

Key = tuple[str | int, ...]  # the path to a value; a number is an index in an array
T = TypeVar("T")


class Signed(float):
    """A number that may be negative."""


EXPECTED = {
    str: "a text",
    bool: "true or false",
    int: "a whole number, 0 or more",
    float: "a number, 0 or more",
    Signed: "a number, such as +0.5 or -1",
    tuple: "a list",
    dict: "a table",
    datetime: "a date with time and offset from UTC, such as 2026-10-01T23:59:00-07:00",
}


class AssignmentError(CourseworkError):
    """A file that states the assignment or the course is missing or cannot be used; the message says why."""


class Complaint(Exception):
    """A mistake in the value at a key."""

    def __init__(self, key: Key, what: str) -> None:
        super().__init__(what)
        self.key, self.what = key, what


def read_toml(
    path: Path, schema: type[T], check: Callable[[T], Iterable[Complaint]] = lambda value: (), partly: bool = False
) -> T:
    """Read a whole file into the dataclass `schema`, without the keys that this lacks if it is read `partly`.

    The fields may be texts, numbers, dates, lists of texts, tables of these, and dataclasses; `check` says where values
    contradict each other. AssignmentError if there is no such file, or it does not fit the schema; the message lists
    every mistake.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        stated = tomllib.loads(text)
        if partly:
            stated = {key: value for key, value in stated.items() if key in get_type_hints(schema)}
        (value,) = _read_all([(stated, schema, ())])
        if found := [*check(value)]:
            raise ExceptionGroup("", found)
    except OSError as error:
        raise AssignmentError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AssignmentError(f"{path} is not TOML: {error}; correct it there") from None
    except ExceptionGroup as group:
        said = [str(locate_error(path, each, text)) for each in group.exceptions if isinstance(each, Complaint)]
        raise AssignmentError("\n".join(said)) from None
    return value


def locate_error(path: Path, complaint: Complaint, text: str | None = None) -> AssignmentError:
    """Turn a complaint into an error that names the file and the line."""
    line = _find_line(text or path.read_text(encoding="utf-8"), complaint.key)
    name = ".".join(part for part in complaint.key if isinstance(part, str))
    return AssignmentError(f"{path}:{line}: {f'{name} ' if name else ''}{complaint.what}")


def _read_all(entries: Iterable[tuple[Any, Any, Key]], found: Sequence[Exception] = ()) -> list[Any]:
    """Read values, each with its type hint and its key; raise all complaints, with those in `found`, in one group."""
    read, found = list[Any](), [*found]
    for value, hint, key in entries:
        try:
            read.append(_read(value, hint, key))
        except* Complaint as group:
            found += group.exceptions
    if found:
        raise ExceptionGroup("", found)
    return read


def _read(value: Any, hint: Any, key: Key) -> Any:
    if NoneType in get_args(hint):  # X | None: TOML has no null
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if dataclasses.is_dataclass(origin):
        return _table(value, origin, key)
    if origin is Literal:
        if value not in arguments:
            raise Complaint(key, f"is {value!r}, expected {' or '.join(map(repr, arguments))}")
        return value
    if not _fits(value, origin):
        raise Complaint(key, f"is {value!r}, expected {EXPECTED[origin]}")
    if origin is tuple:
        return tuple(_read_all((each, arguments[0], (*key, number)) for number, each in enumerate(value)))
    if origin is dict:
        read = _read_all((each, arguments[1], (*key, name)) for name, each in value.items())
        return dict(zip(value, read, strict=True))
    return origin(value) if origin in (float, Signed) else value


def _fits(value: Any, type_: type) -> bool:
    if type_ in (int, float, Signed):
        number = isinstance(value, int) or (type_ is not int and isinstance(value, float))
        return number and not isinstance(value, bool) and math.isfinite(value) and (value >= 0 or type_ is Signed)
    if type_ is str:
        return isinstance(value, str) and bool(value.strip())
    if type_ is datetime:
        return isinstance(value, datetime) and value.tzinfo is not None
    return isinstance(value, list if type_ is tuple else type_)


def _table(value: Any, schema: Any, key: Key) -> Any:
    if not isinstance(value, dict):
        raise Complaint(key, f"is {value!r}, expected a table")
    hints = get_type_hints(schema)
    found = [Complaint((*key, name), _describe_unknown(name, hints)) for name in value if name not in hints]
    needed = [each.name for each in dataclasses.fields(schema) if each.default is each.default_factory]
    found += [Complaint((*key, name), "is missing") for name in needed if name not in value]
    names = [name for name in value if name in hints]
    read = _read_all(((value[name], hints[name], (*key, name)) for name in names), found)
    return schema(**dict(zip(names, read, strict=True)))


def _describe_unknown(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    meant = f"did you mean {close[0]}?" if close else f"the keys are {', '.join(known)}"
    return f"is not a known key; {meant}"


def _find_line(text: str, key: Key) -> int:
    """The line of a key, or of the smallest table around it that has a line."""
    lines: dict[Key, int] = {}
    tables: Counter[str] = Counter()
    table: Key = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*(\[\[?)([^\[\]]+)\]", line):
            first, *rest = (part.strip(" \"'") for part in header[2].split("."))
            tables[first] += header[1] == "[["
            table = (first, tables[first] - 1, *rest) if tables[first] else (first, *rest)
            lines.setdefault(table, number)
        elif entry := re.match(r"\s*[\"']?([^\s=\"']+)[\"']?\s*=", line):
            lines.setdefault((*table, *entry[1].split(".")), number)
    return next((lines[key[:size]] for size in range(len(key), 0, -1) if key[:size] in lines), 1)
