"""Mutants: the student's function with one small change, of the kind that people make by mistake."""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from types import CodeType

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Mod, ast.Div),
    ast.Mod: (ast.FloorDiv,),
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.GtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.LtE, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.MatMult, ast.Pow)
COUNTERPARTS = (
    ("cos", "sin"), ("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("floor", "ceil"),
    ("tril", "triu"), ("any", "all"), ("sum", "mean"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("log", "log2"),
    ("var", "std"), ("append", "appendleft"), ("pop", "popleft"),
)  # fmt: skip
OTHER = {one: other for pair in COUNTERPARTS for one, other in (pair, pair[::-1])}
NOT_RUN = ("returns", "annotation", "decorator_list", "type_params")
MOST_NAMES = 6  # that are tried in the place of one
MOST_TOKENS = 8  # of a pattern of einsum

# The words after "With": what the change is, and not what would be right.
OPERATOR, COMPARISON, SIGN = "another operator here", "another comparison here", "the opposite sign here"
SIDES, NAME, NUMBER = "the two sides here exchanged", "another name here", "another number here"
NAMES = "two names here exchanged"
ARGUMENTS, FUNCTION, ORDER = "the arguments here in another order", "another function here", "another order here"
NOTHING, ONE_MORE = "a part of this left out", "one more or one less here"
TURNED, OPPOSITE = "this transposed", "the opposite here"
LISTED = "a list here, which a loop does not use up as it does a generator"

Slot = tuple[ast.AST, str, int | None]  # of a node: the one above it, the field, and the number in that
Change = tuple[ast.AST, ast.AST, str]  # the node to mark, what takes the place of the slot, and the words


@dataclass(frozen=True)
class Mutant:
    """A function with one change.

    Args:
        node: the expression or the statement that is changed.
        words: what the change is, after "With".
        slot: where the change is made.
        new: what is put there.
    """

    node: ast.AST
    words: str
    slot: Slot
    new: ast.AST

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)

    @property
    def is_less(self) -> bool:
        """Tell whether it leaves something out: with that, wrong code may not run at all."""
        return self.words == NOTHING


class Mutated:
    """A function of the student's, from which mutants are made.

    Args:
        tree: of its file.
        name: its qualified name; it is in no other function.
    """

    def __init__(self, tree: ast.Module, name: str) -> None:
        self.name = name
        *classes, last = name.split(".")
        body: list[ast.stmt] = tree.body
        for each in classes:
            body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == each), [])
        found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == last]
        self.function = copy.deepcopy(found[-1]) if found else None
        self.module = ast.Module([], [])
        self._read = _count_read(self.function) if self.function else Counter[str]()
        if self.function:
            self.function.decorator_list = []
            inner: ast.stmt = self.function
            for each in reversed(classes):
                inner = ast.ClassDef(each, [], [], [inner], [], lineno=1, col_offset=0)
            self.module.body = [inner]
            ast.fix_missing_locations(self.module)

    def list_mutants(
        self, alike: Callable[[str], Collection[str]], parameters: Mapping[str, list[str]]
    ) -> Iterator[Mutant]:
        """List the changes.

        Args:
            alike: gives, for a name or `self.x`, the others that stand for something of the same kind.
            parameters: of the functions and classes that are called, by their names.
        """
        if self.function and not any(isinstance(each, ast.While) for each in ast.walk(self.function)):
            for slot, node in _list_slots(self.function):
                for marked, new, words in _list_changes(slot, node, alike, parameters):
                    if not self._ignores(node, new):
                        yield Mutant(marked, words, slot, new)

    def _ignores(self, old: ast.AST, new: ast.AST) -> bool:
        """Tell whether a change makes the function ignore a parameter: then wrong code may not run at all."""
        own = (
            {each.arg for each in ast.walk(self.function.args) if isinstance(each, ast.arg)} if self.function else set()
        )
        lost = (_count_read(old) - _count_read(new)).keys() & own
        return bool(lost) and any(_count_read(old)[each] == self._read[each] for each in lost)

    def compile(self, mutant: Mutant, file: str) -> CodeType | None:
        """The code of a mutant; None if Python refuses it."""
        (above, name, number), new = mutant.slot, mutant.new
        old = _get(mutant.slot)
        for node in ast.walk(new):
            if "lineno" in node._attributes and not hasattr(node, "lineno"):
                ast.copy_location(node, old)
        try:
            _set(above, name, number, new)
            return find_code(compile(self.module, file, "exec", dont_inherit=True), self.name)
        except (SyntaxError, ValueError, TypeError):
            return None
        finally:
            _set(above, name, number, old)


def find_code(code: CodeType, name: str) -> CodeType | None:
    """The code of a function, by its qualified name, in that of a file."""
    todo = [code]
    while todo:
        each = todo.pop()
        if each.co_qualname == name:
            return each
        todo += [inner for inner in each.co_consts if isinstance(inner, CodeType)]
    return None


def _list_slots(function: ast.FunctionDef) -> Iterator[tuple[Slot, ast.AST]]:
    """The places in the body of a function where an expression or a statement stands."""
    todo: list[ast.AST] = [function]
    while todo:
        above = todo.pop(0)
        for name, value in ast.iter_fields(above):
            if name in NOT_RUN or (name == "args" and isinstance(above, ast.FunctionDef)):
                continue
            for number, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(each, ast.expr | ast.stmt):
                    yield (above, name, number), each
                todo += [each] if isinstance(each, ast.AST) else []


def _count_read(node: ast.AST) -> Counter[str]:
    """Count how often names are read in a node."""
    return Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))


def _get(slot: Slot) -> ast.AST:
    above, name, number = slot
    value = getattr(above, name)
    return value if number is None else value[number]


def _set(above: ast.AST, name: str, number: int | None, new: ast.AST) -> None:
    if number is None:
        setattr(above, name, new)
    else:
        getattr(above, name)[number] = new


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """The same node with other fields."""
    new = type(node)(**{**dict(ast.iter_fields(node)), **fields})
    return ast.copy_location(new, node)


def _list_changes(
    slot: Slot, node: ast.AST, alike: Callable[[str], Collection[str]], parameters: Mapping[str, list[str]]
) -> Iterator[Change]:
    """List what may take the place of a node."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return
    change = partial(_with, node)
    match node:
        case ast.Name() | ast.Attribute() if slot[1] != "func":
            yield from (
                (node, ast.parse(name, mode="eval").body, NAME) for name in [*alike(ast.unparse(node))][:MOST_NAMES]
            )
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value), OPPOSITE
        case ast.Constant(value=int(n)):
            yield from (
                (node, ast.Constant(each), NUMBER) for each in dict.fromkeys((n + 1, n - 1, -n, 2 * n)) if each != n
            )
        case ast.Constant(value=float(x)):
            yield from (
                (node, ast.Constant(each), NUMBER) for each in dict.fromkeys((-x, 1 - x, 2 * x, x / 2)) if each != x
            )
        case ast.Constant(value=str(text)) if isinstance(slot[0], ast.Call) and " " in text:
            yield from ((node, ast.Constant(each), ORDER) for each in _list_patterns(text))
        case ast.BinOp(left=left, op=op, right=right):
            yield from ((node, change(op=each()), OPERATOR) for each in OPERATORS.get(type(op), ()))
            if isinstance(op, ORDERED):
                yield node, change(left=right, right=left), SIDES
            if isinstance(op, ast.MatMult):
                yield from (
                    (node, change(**{side: _turn(x)}), TURNED) for side, x in (("left", left), ("right", right))
                )
            yield from ((node, side, NOTHING) for side in (left, right))
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            yield from ((node, change(ops=[each()]), COMPARISON) for each in OPERATORS.get(type(op), ()))
        case ast.BoolOp(op=op, values=values):
            yield from ((node, change(op=each()), OPERATOR) for each in OPERATORS[type(op)])
            yield from ((node, each, NOTHING) for each in values)
        case ast.UnaryOp(op=op, operand=operand):
            yield node, operand, SIGN if isinstance(op, ast.USub) else OPPOSITE
        case ast.IfExp(body=body, orelse=orelse):
            yield node, change(body=orelse, orelse=body), SIDES
            yield from ((node, each, NOTHING) for each in (body, orelse))
        case ast.Call():
            yield from _list_changes_of_call(node, parameters)
        case ast.Tuple(elts=elements) if len(elements) > 1:
            yield from ((node, change(elts=each), ORDER) for each in _list_exchanges(elements))
        case ast.Slice(lower=lower, upper=upper):
            for name, bound in (("lower", lower), ("upper", upper)):
                yield from ((slot[0], change(**{name: each}), ONE_MORE) for each in _list_next(bound))
                if bound is None:
                    each = ast.Constant(1 if name == "lower" else -1)
                    yield slot[0], change(**{name: each}), ONE_MORE
                else:
                    yield slot[0], change(**{name: None}), NOTHING
        case ast.AugAssign(op=op):
            yield from ((node, change(op=each()), OPERATOR) for each in OPERATORS.get(type(op), ()))
            yield node, ast.Pass(), NOTHING
            yield node, ast.Assign([node.target], node.value), OPERATOR
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(value)):
                yield node, ast.Pass(), NOTHING
        case ast.Expr():
            yield node, ast.Pass(), NOTHING
        case ast.If(test=test):
            yield test, change(test=ast.UnaryOp(ast.Not(), test)), OPPOSITE
    if isinstance(node, ast.BinOp | ast.Compare) and not isinstance(slot[0], ast.BinOp | ast.Compare):
        yield from ((node, each, NAMES) for each in _list_with_names_exchanged(node, alike))
    if isinstance(node, ast.GeneratorExp | ast.Call) and isinstance(slot[0], ast.Assign):
        yield node, ast.Call(ast.Name("list", ast.Load()), [node], []), LISTED
    is_element = isinstance(slot[0], ast.List | ast.Tuple | ast.Return) or slot[1] == "args"
    if (
        is_element
        and isinstance(node, ast.Name | ast.Subscript | ast.BinOp | ast.Call)
        and not isinstance(slot[0], ast.Subscript)
    ):
        yield node, ast.UnaryOp(ast.USub(), node), SIGN
    if isinstance(slot[0], ast.Compare) or (slot[1] == "args" and _name_of(slot[0]) == "range"):
        yield from ((node, each, ONE_MORE) for each in _list_next(node) if not isinstance(node, ast.Constant))


def _list_changes_of_call(node: ast.Call, parameters: Mapping[str, list[str]]) -> Iterator[Change]:
    change, name, arguments = partial(_with, node), _name_of(node), node.args
    if name in OTHER:
        func = node.func
        other = _with(func, **{"attr" if isinstance(func, ast.Attribute) else "id": OTHER[name]})
        yield node, change(func=other), FUNCTION
    if (order := _order_by_names(arguments, parameters.get(name, []))) is not None:
        yield node, change(args=order), ARGUMENTS
    if not any(isinstance(each, ast.Starred) for each in arguments):
        yield from ((node, change(args=each), ARGUMENTS) for each in _list_exchanges(arguments))
    if (
        isinstance(node.func, ast.Attribute)
        and not isinstance(node.func.value, ast.Name | ast.Attribute)
        or (isinstance(node.func, ast.Attribute) and len(arguments) <= 2 and not _is_module(node.func.value))
    ):
        yield node, node.func.value, NOTHING
    if arguments and (not isinstance(node.func, ast.Attribute) or _is_module(node.func.value)):
        yield node, arguments[0], NOTHING
    values = [each.value for each in node.keywords]
    for one, other in combinations(range(len(values)), 2):
        swapped = [
            _with(each, value=values[{one: other, other: one}.get(i, i)]) for i, each in enumerate(node.keywords)
        ]
        yield node, change(keywords=swapped), ARGUMENTS
    for i, each in enumerate(node.keywords):
        if each.arg in ("dim", "axis", "keepdim", "keepdims"):
            yield node, change(keywords=[*node.keywords[:i], *node.keywords[i + 1 :]]), NOTHING


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "numpy", "math", "F", "nn", "einops", "functools")


def _name_of(node: ast.AST) -> str:
    """The last name of what a call calls."""
    func = getattr(node, "func", None)
    return getattr(func, "attr", getattr(func, "id", ""))


def _list_exchanges(elements: list[ast.expr]) -> Iterator[list[ast.expr]]:
    for i, j in combinations(range(len(elements)), 2):
        new = [*elements]
        new[i], new[j] = new[j], new[i]
        yield new


def _list_with_names_exchanged(value: ast.expr, alike: Callable[[str], Collection[str]]) -> Iterator[ast.expr]:
    """The expression with two of its names in each other's place."""
    names = list(dict.fromkeys(each.id for each in ast.walk(value) if isinstance(each, ast.Name)))
    for one, other in combinations(names, 2):
        if other in alike(one):
            new = copy.deepcopy(value)
            for each in ast.walk(new):
                if isinstance(each, ast.Name):
                    each.id = {one: other, other: one}.get(each.id, each.id)
            yield new


def _order_by_names(arguments: list[ast.expr], parameters: list[str]) -> list[ast.expr] | None:
    """The arguments in the order of the parameters that are called alike, if that is another one."""
    by_name = {getattr(each, "id", getattr(each, "attr", "")): each for each in arguments}
    names = parameters[: len(arguments)]
    if {*by_name} != {*names} or list(by_name) == names or len(by_name) != len(arguments) < 3:
        return None
    return [by_name[name] for name in names]


def _list_next(bound: ast.AST | None) -> list[ast.expr]:
    if not isinstance(bound, ast.expr) or isinstance(bound, ast.Constant):
        return []
    return [ast.BinOp(bound, op, ast.Constant(1)) for op in (ast.Add(), ast.Sub())]


def _turn(x: ast.expr) -> ast.expr:
    return ast.Attribute(x, "mT", ast.Load())


def _list_patterns(text: str) -> Iterator[str]:
    """The pattern of einsum with two axes of one operand exchanged."""
    left, arrow, right = text.partition("->")
    terms = [*left.split(","), right] if arrow else [text]
    for number, term in enumerate(terms):
        tokens = term.split()
        for i, j in combinations(range(min(len(tokens), MOST_TOKENS)), 2):
            if tokens[i] not in ("...", "(", ")") and tokens[j] not in ("...", "(", ")"):
                new = [*tokens]
                new[i], new[j] = new[j], new[i]
                changed = [*terms]
                changed[number] = " ".join(new)
                yield ", ".join(changed[:-1]) + f" -> {changed[-1]}" if arrow else changed[0]
