"""Calls that pass nothing for a parameter, which then has its default."""

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from whichline.engine.names import resolve
from whichline.locate.observed import Observed
from whichline.locate.probe import Expression
from whichline.locate.trace import Trace


def list_unpassed(observed: Observed, place: Expression) -> dict[str, Any]:
    """List the parameters for which a call of the student's code passes nothing, each with its default."""
    call = place.node
    if not isinstance(call, ast.Call) or place.unpacks_arguments:
        return {}
    called = resolve(call.func, observed.find_namespace(place.file))
    if not callable(called) or not observed.is_own(called):
        return {}
    try:
        parameters = [*inspect.signature(called).parameters.values()]
    except ValueError:  # as of classes of exceptions
        return {}
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return {}
    given = {each.name for each in parameters[: len(call.args)]} | {each.arg for each in call.keywords}
    return {each.name: each.default for each in parameters if each.default is not each.empty and each.name not in given}


def find_unpassing(observed: Observed, trace: Trace, place: Expression) -> Expression | None:
    """Find the call that passes nothing for a parameter with the name of a number, which is its default."""
    value, name = trace.values[place][0], place.text.rpartition(".")[2].lstrip("_")
    calls = _list_calls(observed, trace) if trace.is_number(place) and name.isidentifier() else ()
    defaults = ((call, unpassed.get(name)) for call, unpassed in calls)
    return next((call for call, x in defaults if type(x) is type(value) and x == value), None)


def list_unpassing(observed: Observed, trace: Trace, place: Expression) -> list[Expression]:
    """List the calls that pass nothing for what the function of an expression reads, though they could."""
    read, found = _list_names(observed, place), list[Expression]()
    for call, defaults in _list_calls(observed, trace):
        here = _list_names(observed, call) if defaults.keys() & read else ()
        found += [call] * any(isinstance(defaults[name], int) or name in here for name in defaults.keys() & read)
    return found


def _list_calls(observed: Observed, trace: Trace) -> Iterator[tuple[Expression, dict[str, Any]]]:
    """Yield the calls in the functions that ran, also those that make no value, each with what it does not pass."""
    ran = {(each.file, each.function) for each in trace.order}
    calls = (each for each in observed.places if (each.file, each.function) in ran and isinstance(each.node, ast.Call))
    yield from ((call, list_unpassed(observed, call)) for call in calls)


def _list_names(observed: Observed, place: Expression) -> set[str]:
    """List the names and attributes in the function of an expression."""
    function = observed.definitions.get((place.file, place.function))
    named = [each for each in ast.walk(function or place.node) if isinstance(each, ast.Name | ast.Attribute | ast.arg)]
    return {getattr(each, "id", getattr(each, "attr", getattr(each, "arg", ""))) for each in named}
