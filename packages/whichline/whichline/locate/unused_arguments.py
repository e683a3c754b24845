"""Arguments that the student's code never reads although the right output depends on them."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from whichline.locate.reference import Reference
from whichline.rules.pairing import INIT

Definitions = Mapping[tuple[str, str], ast.FunctionDef]  # of functions, by file and qualified name


def is_needed(reference: Reference, arguments: Mapping[str, Any], name: str) -> bool:
    """Tell whether an argument is a tensor or a fraction that changes the right output when it changes."""
    x = arguments[name]
    if isinstance(x, Tensor):
        other: Any = ~x if x.dtype == torch.bool else x.flip(-1)
    elif isinstance(x, float):
        other = 2 * x
    else:
        return False
    right = reference.answer(arguments)
    try:
        answer = reference.answer({**arguments, name: other})
    except (RuntimeError, IndexError, ValueError):
        return False
    both = [(each,) if isinstance(each, Tensor) else each for each in (answer, right)]
    are_alike = [one.shape == other.shape for one, other in zip(*both, strict=True)]
    return all(are_alike) and not all(torch.allclose(*each, equal_nan=True) for each in zip(*both, strict=True))


def find_unread(
    ran: Collection[tuple[str, str]], definitions: Definitions, names: Iterable[str]
) -> Iterator[tuple[str, str, str, ast.arg | ast.expr]]:
    """Yield the arguments that a function receives and does not read.

    For each: the file and the name of the function, the name of the argument, and where it is received; there it may
    have another name.

    Args:
        ran: file and qualified name of the functions that ran.
        definitions: of all functions.
        names: of arguments.
    """
    nodes = {function: definitions[function] for function in ran if function in definitions}
    for name in names:
        takes = {function: node for function, node in nodes.items() if name in find_parameters(node)}
        unread = [function for function, node in takes.items() if not _is_read(node, name)]
        others = [node for function, node in takes.items() if function not in unread]
        if unread and all(_is_only_passed_on(node, name) for node in others):
            yield *unread[-1], name, find_parameters(takes[unread[-1]])[name]
        for function, node in nodes.items() if not takes else ():
            yield from ((*function, name, target) for target in _list_lost(node, name))
        renamed = [each for function in takes for each in _list_renamed(nodes, function, name)]
        if renamed and all(_is_only_passed_on(node, name) for node in takes.values()):
            lost = [(function, own) for function, own in renamed if not _is_read(nodes[function], own)]
            yield from ((*function, name, find_parameters(nodes[function])[own]) for function, own in lost)


def _list_renamed(
    nodes: Mapping[tuple[str, str], ast.FunctionDef], function: tuple[str, str], name: str
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the functions to which a function passes its parameter under another name, each with that name."""
    for call in (each for each in ast.walk(nodes[function]) if isinstance(each, ast.Call)):
        called = getattr(call.func, "attr", getattr(call.func, "id", ""))
        for other, node in nodes.items():
            *outer, last = other[1].split(".")
            if called != (outer[-1] if last == INIT and outer else last):
                continue
            own = [each for each in find_parameters(node) if each not in ("self", "cls")]
            given = [*zip(own, call.args, strict=False), *((each.arg, each.value) for each in call.keywords)]
            passed = [each for each, value in given if isinstance(value, ast.Name) and value.id == name]
            yield from ((other, each) for each in passed if each in own and each != name)


def _list_lost(function: ast.FunctionDef, name: str) -> Iterator[ast.Name]:
    """Yield the names that get an argument out of `**kwargs` and are never read."""
    read = {each.id for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    for node in ast.walk(function) if function.args.kwarg else ():
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        keys = [each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)] if target else []  # type: ignore[union-attr]
        if isinstance(target, ast.Name) and name in keys and target.id not in read:
            yield target


def find_parameters(node: ast.FunctionDef) -> dict[str, ast.arg]:
    """Find the parameters of a function by name, but for `*args` and `**kwargs`."""
    return {each.arg: each for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}


def _is_read(function: ast.FunctionDef, name: str) -> bool:
    """Tell whether something reads an argument before it is assigned anew."""
    for statement in function.body:
        uses = [node.ctx for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name]
        if any(isinstance(use, ast.Load) for use in uses):
            return True
        if uses and isinstance(statement, ast.Assign | ast.AnnAssign):
            return False
    return False


def _is_only_passed_on(function: ast.FunctionDef, name: str) -> bool:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    passed = [each for call in calls for each in (*call.args, *(keyword.value for keyword in call.keywords))]
    passed += [each for node in passed if isinstance(node, ast.Tuple) for each in node.elts]  # functional_call
    given = {id(node) for node in passed}
    reads = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    return all(id(node) in given for node in reads if isinstance(node.ctx, ast.Load))
