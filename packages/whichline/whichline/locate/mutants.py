"""Mutants: a function of the student's with one small change, of a kind that undoes a common mistake."""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import CodeType

from whichline.locate.instrument import PROBE
from whichline.locate.observed import list_codes

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
OF_SIZES = ("argmax", "max", "amax", "sum", "mean", "sqrt")  # functions that are often about sizes without a sign
AXES = ("dim", "axis", "keepdim", "keepdims")  # arguments that a mutant may leave out
NOT_RUN = ("returns", "annotation", "decorator_list", "type_params")
MOST_NAMES = 6  # that replace one name
MOST_AXES = 8  # of an operand of einsum

# What a change is, after "With"; a message does not say what would be right.
OPERATOR, COMPARISON, FUNCTION = "another operator here", "another comparison here", "another function here"
NAME, NUMBER, ONE_MORE = "another name here", "another number here", "one more or one less here"
SIGN, OPPOSITE, TURNED = "the opposite sign here", "the opposite here", "one of the two transposed here"
SIDES, NAMES = "the two sides here exchanged", "two names here exchanged"
PARENTHESES = "the parentheses here in another place"
ARGUMENTS, ORDER = "the arguments here in another order", "another order here"
OTHER_END, RETURNED = "the other end here", "`return` here"
OPTION, ABSOLUTE = "another option here", "the absolute value here"
NOTHING, LINE = "a part of this left out", "this line left out"
LISTED = "a list here, which a loop does not use up as it does a generator"

NAMED = (ast.Name, ast.Attribute, ast.Subscript)  # what stands for a value

Slot = tuple[ast.AST, str, int | None]  # the position of a node: its parent, the field, the index in the field
Change = tuple[ast.AST, ast.AST, str]  # the node to mark, the new node for the slot, and the words


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
    def rank(self) -> int:
        """How late it is tried: a sign where none stood may make up for a mistake elsewhere, and so may less code."""
        is_added = self.words == SIGN and isinstance(self.new, ast.UnaryOp)
        return 2 if self.words in (NOTHING, LINE) else int(is_added)


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
        found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == last]
        function = (
            copy.deepcopy(found[-1])
            if found
            else ast.FunctionDef(last, ast.arguments([], [], None, [], [], None, []), [ast.Pass()], [])
        )
        function.decorator_list = []
        inner: ast.stmt = function
        for each in reversed(classes):
            inner = ast.ClassDef(each, [], [], [inner], [])
        self.name, self._function = name, function
        self._module = ast.fix_missing_locations(ast.Module([inner], []))
        self._parameters = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        self._read = _count_read(function)
        self._has_loop = any(isinstance(each, ast.While) for each in ast.walk(function))

    def list_mutants(self, changes: "Changes") -> list[Mutant]:
        """List all mutants."""
        found = [(slot, change) for slot in _list_slots(self._function) for change in changes.list_changes(slot)]
        return [Mutant(node, words, slot, new) for slot, (node, new, words) in found if not self._ignores(slot, new)]

    def _ignores(self, slot: Slot, new: ast.AST) -> bool:
        """Tell whether a change makes the function ignore a parameter: it may pass only by avoiding the wrong code."""
        lost = _count_read(_get(slot)) - _count_read(new)
        return any(lost[each] == self._read[each] for each in lost.keys() & self._parameters)

    def compile(self, mutant: Mutant, file: str) -> CodeType | None:
        """Compile a mutant; None if Python refuses it."""
        old = _get(mutant.slot)
        for node in ast.walk(mutant.new):
            if "lineno" in node._attributes and not hasattr(node, "lineno"):
                ast.copy_location(node, old)
        _set(mutant.slot, mutant.new)
        try:
            module = _Counted().visit(copy.deepcopy(self._module)) if self._has_loop else self._module
            return find_code(compile(module, file, "exec", dont_inherit=True), self.name)
        except (SyntaxError, ValueError, TypeError):
            return None
        finally:
            _set(mutant.slot, old)


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


def _count_read(node: ast.AST) -> Counter[str]:
    """Count how often names are read in a node."""
    return Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))


def _get(slot: Slot) -> ast.AST:
    above, name, number = slot
    value = getattr(above, name)
    return value if number is None else value[number]


def _set(slot: Slot, new: ast.AST) -> None:
    above, name, number = slot
    if number is None:
        setattr(above, name, new)
    else:
        getattr(above, name)[number] = new


@dataclass(frozen=True)
class Changes:
    """Lists what may take the place of an expression or of a statement."""

    # gives, for a name or `self.x`, the others that stand for something of the same kind
    list_alike: Callable[[str], Collection[str]]
    parameters: Mapping[str, Sequence[str]]  # of the functions and classes of the student's, by their names
    modules: Collection[str]  # the names that are imported
    is_counted: Callable[[ast.AST], bool]  # whether an expression is a number, or a tensor of whole numbers

    def list_changes(self, slot: Slot) -> Iterator[Change]:
        """List the changes of the node in a slot."""
        node = _get(slot)
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            list_own = getattr(self, f"_of_{type(node).__name__.lower()}", None)
            yield from list_own(node, slot) if list_own else ()
            yield from self._list_beside(node, slot)

    def _list_beside(self, node: ast.AST, slot: Slot) -> Iterator[Change]:
        """List the changes that depend on where a node stands."""
        above, field, _ = slot
        is_element = isinstance(above, ast.List | ast.Tuple | ast.Return) or field == "args"
        if is_element and isinstance(node, ast.Name | ast.Subscript | ast.BinOp | ast.Call):
            yield node, ast.UnaryOp(ast.USub(), node), SIGN
        is_bound = isinstance(above, ast.Compare) or (field == "args" and _name_called(above) == "range")
        is_whole = isinstance(node, ast.BinOp) and (field == "args" or isinstance(above, ast.Assign))
        if is_bound or (is_whole and self.is_counted(node)):
            yield from ((node, each, ONE_MORE) for each in _list_next(node))
        if field == "args" and isinstance(node, ast.expr) and _name_called(above) in OF_SIZES:
            yield node, _call("abs", node), ABSOLUTE
        if isinstance(above, ast.Assign) and isinstance(node, ast.GeneratorExp | ast.Call):
            yield node, _call("list", node), LISTED
        if isinstance(node, ast.BinOp | ast.Compare) and not isinstance(above, ast.BinOp | ast.Compare):
            names = dict.fromkeys(ast.unparse(each) for each in ast.walk(node) if isinstance(each, NAMED))
            for one, other in combinations(names, 2):
                if other in self.list_alike(one):
                    yield node, _Exchange(one, other).visit(copy.deepcopy(node)), NAMES

    # Expressions.

    def _of_name(self, node: ast.Name | ast.Attribute, slot: Slot) -> Iterator[Change]:
        names = [*self.list_alike(ast.unparse(node))][:MOST_NAMES] if slot[1] != "func" else ()
        yield from ((node, ast.parse(name, mode="eval").body, NAME) for name in names)

    _of_attribute = _of_name

    def _of_constant(self, node: ast.Constant, slot: Slot) -> Iterator[Change]:
        match node.value:
            case bool(x):
                yield node, ast.Constant(not x), OPPOSITE
            case int(x):
                yield from ((node, ast.Constant(each), NUMBER) for each in {x + 1, x - 1, -x, 2 * x} - {x})
            case float(x):
                yield from ((node, ast.Constant(each), NUMBER) for each in {-x, 1 - x, 2 * x, x / 2} - {x})
            case str(x) if isinstance(slot[0], ast.Call) and "->" in x:
                yield from ((node, ast.Constant(each), ORDER) for each in _list_patterns(x))

    def _of_binop(self, node: ast.BinOp, _: Slot) -> Iterator[Change]:
        left, op, right = node.left, node.op, node.right
        yield from ((node, ast.BinOp(left, each(), right), OPERATOR) for each in OPERATORS.get(type(op), ()))  # type: ignore[arg-type]
        if isinstance(op, ORDERED):
            yield node, ast.BinOp(right, op, left), SIDES
        if isinstance(op, ast.MatMult):
            yield node, ast.BinOp(_transpose(left), op, right), TURNED
            yield node, ast.BinOp(left, op, _transpose(right)), TURNED
        if isinstance(left, ast.BinOp):
            yield node, ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right)), PARENTHESES
            yield node, ast.BinOp(ast.BinOp(left.left, op, right), left.op, left.right), PARENTHESES
        if isinstance(right, ast.BinOp):
            yield node, ast.BinOp(ast.BinOp(left, op, right.left), right.op, right.right), PARENTHESES
        yield from ((node, side, NOTHING) for side in (left, right))

    def _of_compare(self, node: ast.Compare, _: Slot) -> Iterator[Change]:
        others = OPERATORS.get(type(node.ops[0]), ()) if len(node.ops) == 1 else ()
        yield from ((node, ast.Compare(node.left, [each()], node.comparators), COMPARISON) for each in others)  # type: ignore[list-item]

    def _of_boolop(self, node: ast.BoolOp, _: Slot) -> Iterator[Change]:
        yield from ((node, ast.BoolOp(each(), node.values), OPERATOR) for each in OPERATORS[type(node.op)])  # type: ignore[arg-type]
        yield from ((node, each, NOTHING) for each in node.values)

    def _of_unaryop(self, node: ast.UnaryOp, _: Slot) -> Iterator[Change]:
        yield node, node.operand, SIGN if isinstance(node.op, ast.USub) else OPPOSITE

    def _of_ifexp(self, node: ast.IfExp, _: Slot) -> Iterator[Change]:
        yield node, ast.IfExp(node.test, node.orelse, node.body), SIDES
        yield from ((node, each, NOTHING) for each in (node.body, node.orelse))

    def _of_tuple(self, node: ast.Tuple, _: Slot) -> Iterator[Change]:
        yield from ((node, ast.Tuple(each, ast.Load()), ORDER) for each in _list_exchanges(node.elts))

    def _of_slice(self, node: ast.Slice, slot: Slot) -> Iterator[Change]:
        lower, upper, marked = node.lower, node.upper, slot[0]
        yield from ((marked, ast.Slice(each, upper, node.step), ONE_MORE) for each in _list_next(lower, 1))
        yield from ((marked, ast.Slice(lower, each, node.step), ONE_MORE) for each in _list_next(upper, -1))
        if lower or upper:
            yield marked, ast.Slice(upper, lower, node.step), SIDES
            yield from ((marked, each, NOTHING) for each in (ast.Slice(None, upper), ast.Slice(lower, None)))
        if bool(lower) != bool(upper):
            other = ast.UnaryOp(ast.USub(), lower or upper)  # type: ignore[arg-type]  (one of them is there)
            yield marked, ast.Slice(other, None) if upper else ast.Slice(None, other), OTHER_END

    def _of_call(self, node: ast.Call, _: Slot) -> Iterator[Change]:
        func, arguments, keywords = node.func, node.args, node.keywords
        name, is_method = _name_called(node), self._is_method(func)
        if name in OTHER:
            field = {"attr" if isinstance(func, ast.Attribute) else "id": OTHER[name]}
            yield node, ast.Call(_with(func, **field), arguments, keywords), FUNCTION
        if not any(isinstance(each, ast.Starred) for each in arguments):
            by_names = _order_by_names(arguments, self.parameters.get(name, ()))
            orders = [*by_names, *_list_exchanges(arguments)]
            yield from ((node, ast.Call(func, each, keywords), ARGUMENTS) for each in orders)
        for values in _list_exchanges([each.value for each in keywords]):
            new = [ast.keyword(each.arg, value) for each, value in zip(keywords, values, strict=True)]
            yield node, ast.Call(func, arguments, new), ARGUMENTS
        if name in ("var", "std") and not any(each.arg in ("unbiased", "correction", "ddof") for each in keywords):
            yield node, ast.Call(func, arguments, [*keywords, ast.keyword("unbiased", ast.Constant(False))]), OPTION
        for each in keywords:
            if each.arg in AXES:
                yield node, ast.Call(func, arguments, [other for other in keywords if other is not each]), NOTHING
        inner = func.value if is_method and isinstance(func, ast.Attribute) else arguments[0] if arguments else None
        if inner and not isinstance(inner, ast.Starred):
            yield node, inner, NOTHING

    def _is_method(self, func: ast.expr) -> bool:
        is_of_module = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name)
        return isinstance(func, ast.Attribute) and not (is_of_module and func.value.id in {*self.modules, "self"})  # type: ignore[attr-defined]

    # Statements.

    def _of_augassign(self, node: ast.AugAssign, _: Slot) -> Iterator[Change]:
        for each in OPERATORS.get(type(node.op), ()):
            yield node, ast.AugAssign(node.target, each(), node.value), OPERATOR  # type: ignore[arg-type]
        yield node, ast.Assign([node.target], node.value), OPERATOR
        yield node, ast.Pass(), LINE

    def _of_assign(self, node: ast.Assign, _: Slot) -> Iterator[Change]:
        names = {each.id for each in node.targets if isinstance(each, ast.Name)}
        if names & _count_read(node.value).keys():
            yield node, ast.Pass(), LINE

    def _of_expr(self, node: ast.Expr, _: Slot) -> Iterator[Change]:
        yield node, ast.Return(node.value), RETURNED
        yield node, ast.Pass(), LINE

    def _of_if(self, node: ast.If, _: Slot) -> Iterator[Change]:
        yield node.test, ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse), OPPOSITE


class _Counted(ast.NodeTransformer):
    """Has each turn of a `while` count as a look at an expression, so that a mutant that loops for ever is ended."""

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        look = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(0), node.test], [])
        return ast.fix_missing_locations(ast.copy_location(ast.While(look, node.body, node.orelse), node))


class _Exchange(ast.NodeTransformer):
    """Exchanges expressions by their texts."""

    def __init__(self, one: str, other: str) -> None:
        self._texts = {one: other, other: one}

    def visit(self, node: ast.AST) -> ast.AST:
        text = ast.unparse(node) if isinstance(node, NAMED) else ""
        return ast.parse(self._texts[text], mode="eval").body if text in self._texts else super().visit(node)


def _with(node: ast.expr, **fields: object) -> ast.expr:
    """Copy a node with other fields."""
    new = copy.copy(node)
    vars(new).update(fields)
    return new


def _call(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [argument], [])


def _transpose(x: ast.expr) -> ast.expr:
    return ast.Attribute(x, "mT", ast.Load())


def _name_called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    func = getattr(node, "func", None)
    return getattr(func, "attr", getattr(func, "id", ""))


def _list_exchanges(elements: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
    """List the orders of the elements in which two are exchanged."""
    for i, j in combinations(range(len(elements)), 2):
        new = [*elements]
        new[i], new[j] = new[j], new[i]
        yield new


def _order_by_names(arguments: Sequence[ast.expr], parameters: Sequence[str]) -> Iterator[list[ast.expr]]:
    """The arguments in the order of the parameters of these names, where that is no exchange of two."""
    by_name = {getattr(each, "id", getattr(each, "attr", "")): each for each in arguments}
    names = [*parameters[: len(arguments)]]
    if len(by_name) == len(arguments) > 2 and {*by_name} == {*names} and [*by_name] != names:
        yield [by_name[name] for name in names]


def _list_next(bound: ast.AST | None, default: int | None = None) -> list[ast.expr]:
    """List a bound plus one and minus one; the bound of a slice may be missing."""
    if bound is None:
        return [ast.Constant(default)]
    if not isinstance(bound, ast.expr) or isinstance(bound, ast.Constant):  # a constant has its own changes
        return []
    return [ast.BinOp(bound, op, ast.Constant(1)) for op in (ast.Add(), ast.Sub())]


def _list_patterns(text: str) -> Iterator[str]:
    """The pattern of einsum with two axes of one operand, or of the result, exchanged."""
    left, _, right = text.partition("->")
    terms = [each.split() if " " in each.strip() else [*each.strip()] for each in (*left.split(","), right)]
    joint = " " if " " in right.strip() or any(len(each) > 1 for term in terms for each in term) else ""
    for number, axes in enumerate(terms):
        for i, j in combinations(range(min(len(axes), MOST_AXES)), 2):
            if not {axes[i], axes[j]} & {"...", "(", ")", "."}:
                new = [*axes]
                new[i], new[j] = new[j], new[i]
                joined = [joint.join(new if n == number else each) for n, each in enumerate(terms)]
                yield f"{','.join(joined[:-1])} -> {joined[-1]}"
