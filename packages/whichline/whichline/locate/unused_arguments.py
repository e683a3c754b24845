"""Arguments that the student's code never reads although the right output depends on them."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from whichline.locate.reference import Reference

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

    For each: the file and the name of the function, the name of the argument, and where it is received.

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
