"""Mutants: a function of the student's with one small change, of a kind that undoes a common mistake."""

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, Protocol

from whichline.locate.changes import EVERYWHERE, MORE, NUMBER, ONE_MORE, RANKS, SIGN, Change, Slot, get_node
from whichline.locate.derived import NAMED, count_read, list_next
from whichline.locate.instrument import PROBE, copy_whole
from whichline.locate.named import span_of
from whichline.locate.observed import list_codes

EXCHANGED = "this line and the next one exchanged"
NOT_RUN = ("returns", "annotation", "decorator_list", "type_params")


@dataclass(frozen=True)
class Mutant:
    """A function with one change."""

    node: ast.AST  # the expression or the statement to mark
    words: str  # what the change is, after "With"
    slot: Slot  # the position of the change
    new: ast.AST  # the node to put there

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Name the parameter for which a call passes nothing, if the change passes an argument for it."""
        keywords = self.new.keywords if self.words == MORE and isinstance(self.new, ast.Call) else ()
        named = [each for each in keywords if each not in getattr(self.node, "keywords", ())]
        return tuple(f"This call passes nothing for `{each.arg}`." for each in named)

    def list_shifted(self, is_count: bool) -> "list[Mutant]":
        """List the mutants with the next numbers in place of a count, or of what one more argument gets."""
        new = self.new
        if self.words == MORE and isinstance(new, ast.Call) and new.keywords:
            *others, last = new.keywords
            calls = (ast.Call(new.func, new.args, [*others, ast.keyword(last.arg, x)]) for x in list_next(last.value))
            return [replace(self, new=each) for each in calls]
        return [replace(self, new=each) for each in list_next(new)] if is_count else []

    @property
    def is_sign_of_argument(self) -> bool:
        """Tell whether another sign is given to a name that a call gets."""
        return self.words == SIGN and isinstance(self.node, NAMED) and self.slot[1] == "args"

    @property
    def rank(self) -> int:
        """Mutants with a low rank are tried first: more code, or another first value, may make up for a mistake."""
        is_sign = self.words == SIGN and isinstance(self.new, ast.UnaryOp)
        is_one_more = self.words == ONE_MORE and isinstance(self.slot[0], ast.BinOp)
        is_first = self.words == NUMBER and isinstance(self.slot[0], ast.Assign)
        is_renamed = self.words == EVERYWHERE and isinstance(self.node, ast.expr)
        is_late = is_sign or is_one_more or is_first or is_renamed
        is_condition = isinstance(self.slot[0], ast.If | ast.While)  # another one may only avoid the wrong code
        rank = 3 if self.words == EXCHANGED else RANKS.get(self.words, 0)
        return rank if rank < 0 else max(rank, 2 * is_late, is_condition)


class ListsChanges(Protocol):
    """Lists what may take the place of a node."""

    def list_changes(self, slot: Slot) -> Iterator[Change]: ...


class Mutable:
    """A function of the student's, and its mutants.

    Args:
        tree: of its file.
        name: its qualified name; the function is inside no other one.
    """

    def __init__(self, tree: ast.Module, name: str) -> None:
        *classes, last = name.split(".")
        body: list[ast.stmt] = tree.body
        for each in classes:
            body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == each), [])
        found = [node for node in map(_as_function, body) if isinstance(node, ast.FunctionDef) and node.name == last]
        nothing = ast.FunctionDef(last, ast.arguments([], [], None, [], [], None, []), [ast.Pass()], [])
        function = copy_whole(found[-1]) if found else nothing
        function.decorator_list = []
        inner: ast.stmt = function
        for each in reversed(classes):
            inner = ast.ClassDef(each, [], [], [inner], [])
        self.name, self.function = name, function
        self._module = ast.fix_missing_locations(ast.Module([inner], []))
        above = next(each for each in ast.walk(self._module) if function in getattr(each, "body", ()))
        self.slot: Slot = (above, "body", 0)  # of the whole function
        self.probed: Mapping[tuple[Any, ...], int] = {}  # the probes of the expressions whose values are replaced
        self._parameters = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        self._read = count_read(function)
        self._has_loop = any(isinstance(each, ast.While) for each in ast.walk(function))

    @property
    def unread(self) -> set[str]:
        """The parameters that it does not read."""
        return {each for each in self._parameters - self._read.keys() if not each.startswith("_")} - {"self", "cls"}

    def list_mutants(self, changes: ListsChanges) -> list[Mutant]:
        """List the function with each of the changes."""
        found = [(slot, change) for slot in _list_slots(self.function) for change in changes.list_changes(slot)]
        return [Mutant(node, words, slot, new) for slot, (node, new, words) in found if not self._ignores(slot, new)]

    def list_exchanges(self) -> Iterator[Mutant]:
        """Yield the function with a statement behind the next one."""
        for slot in (self.slot, *_list_slots(self.function)):
            node = get_node(slot)
            body = getattr(node, "body", [])
            for number in range(1, len(body) if isinstance(body, list) else 0):
                new = copy.copy(node)
                vars(new)["body"] = [*body[: number - 1], *body[number - 1 : number + 1][::-1], *body[number + 1 :]]
                yield Mutant(body[number - 1], EXCHANGED, slot, new)

    def list_named(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield the names in it, each with the expression that computes what it stands for: itself, if it is read."""
        for node in ast.walk(self.function):
            if isinstance(node, NAMED) and isinstance(node.ctx, ast.Load):
                yield node, node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], NAMED):
                yield node.targets[0], node.value

    def _ignores(self, slot: Slot, new: ast.AST) -> bool:
        """Tell whether a change makes the function ignore a parameter: it may pass only by avoiding the wrong code."""
        lost = count_read(get_node(slot)) - count_read(new)
        return any(lost[each] == self._read[each] for each in lost.keys() & self._parameters)

    def compile(self, mutant: Mutant, file: str) -> CodeType | None:
        """Compile a mutant; None if Python refuses it."""
        old = get_node(mutant.slot)
        for node in ast.walk(mutant.new):
            if "lineno" in node._attributes and not hasattr(node, "lineno"):
                ast.copy_location(node, old)
        _set(mutant.slot, mutant.new)
        try:
            return self.compile_plainly(file)
        except (SyntaxError, ValueError, TypeError):
            return None
        finally:
            _set(mutant.slot, old)

    def compile_plainly(self, file: str) -> CodeType | None:
        """Compile the function itself, without probes but for those of replaced values."""
        is_changed = self._has_loop or self.probed
        module = _Probed(self.probed).visit(copy_whole(self._module)) if is_changed else self._module
        return find_code(compile(module, file, "exec", dont_inherit=True), self.name)  # type: ignore[arg-type]  (a module)


def find_outermost(function: str) -> str:
    """Return the name of the outermost function around a function."""
    return function.partition(".<locals>")[0]


def find_code(code: CodeType, name: str) -> CodeType | None:
    """Find the code of a function, by its qualified name, in the code of its file."""
    return next((each for each in list_codes(code) if each.co_qualname == name), None)


def _list_slots(function: ast.FunctionDef) -> Iterator[Slot]:
    """Yield the slots of all expressions and statements in the body of a function."""
    todo: list[ast.AST] = [*function.body]
    yield from ((function, "body", number) for number in range(len(function.body)))
    while todo:
        above = todo.pop(0)
        for name, value in ast.iter_fields(above):
            if name in NOT_RUN or isinstance(value, ast.arguments):
                continue
            for number, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(each, ast.expr | ast.stmt):
                    yield above, name, number
                todo += [each] if isinstance(each, ast.AST) else []


def _set(slot: Slot, new: ast.AST) -> None:
    above, name, number = slot
    if number is None:
        setattr(above, name, new)
    else:
        getattr(above, name)[number] = new


def _as_function(node: ast.stmt) -> ast.stmt:
    """Write `f = lambda x: y` as the function that it is."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) and isinstance(node.targets[0], ast.Name):
        end = ast.copy_location(ast.Return(node.value.body), node.value)
        return ast.copy_location(ast.FunctionDef(node.targets[0].id, node.value.args, [end], []), node)
    return node


class _Probed(ast.NodeTransformer):
    """Puts probes at some expressions, and has each turn of a `while` count as a look at one, so that any loop ends."""

    def __init__(self, probed: Mapping[tuple[Any, ...], int]) -> None:
        self._probed = probed

    def visit(self, node: ast.AST) -> ast.AST:
        new = super().visit(node)
        number = self._probed.get(span_of(node)) if isinstance(node, ast.expr) else None
        return new if number is None or not isinstance(new, ast.expr) else _look(new, number)

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.test = _look(node.test, 0)
        return node


def _look(node: ast.expr, number: int) -> ast.expr:
    look = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(number), node], [])
    return ast.fix_missing_locations(ast.copy_location(look, node))
