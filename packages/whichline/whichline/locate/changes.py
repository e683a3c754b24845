"""Changes of an expression or a statement, of the kinds that undo common mistakes."""

import ast
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whichline.locate.derived import (
    NAMED,
    Exchange,
    add_keyword,
    change_fields,
    count_read,
    list_as_in,
    list_copies,
    list_exchanges,
    list_moved,
    list_next,
    list_patterns,
    list_repeated,
    make_call,
    name_called,
    transpose,
)
from whichline.locate.instrument import copy_whole

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
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.MatMult, ast.Pow)
COUNTERPARTS = (
    ("cos", "sin"), ("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("floor", "ceil"),
    ("tril", "triu"), ("any", "all"), ("sum", "mean"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("log", "log2"),
    ("var", "std"), ("append", "appendleft"), ("pop", "popleft"), ("left", "right"), ("lower", "upper"),
    ("add", "sub"), ("mul", "div"),
)  # fmt: skip
OTHER = {one: other for pair in COUNTERPARTS for one, other in (pair, pair[::-1])}
VIEWS = ("detach", "view", "reshape", "transpose")  # functions that share the numbers of a tensor
OF_SHARES = ("bernoulli", "bernoulli_")  # functions of a share, in whose place people pass what is left of it
OF_ZEROS = ("zeros", "new_zeros", "zeros_like")  # a maximum begins at −inf in its place
OPERANDS = ("args", "left", "right")  # fields of what is computed with; only a backward pass gets factors there
AXES = ("dim", "axis", "keepdim", "keepdims")  # arguments that a mutant may leave out
MOST_NAMES = 6  # that replace one name
MOST_COUNTS = 16  # names that replace one by which a number is divided
MOST_FACTORS = 6  # names of fractions by which a value is multiplied or divided

# The words for a change, after "With"; they do not say what would be right.
OPERATOR, COMPARISON, FUNCTION = "another operator here", "another comparison here", "another function here"
NAME, NUMBER, ONE_MORE = "another name here", "another number here", "one more or one less here"
SIGN, OPPOSITE, TURNED = "the opposite sign here", "the opposite here", "one of the two transposed here"
SIDES, NAMES = "the two sides here exchanged", "two names here exchanged"
ARGUMENTS, ORDER = "the arguments here in another order", "another order here"
OTHER_END, RETURNED, KEPT = "the other end here", "`return` here", "an assignment here"
OPTION, REST, MORE = "another option here", "1 minus this", "one more argument here"
NOTHING, LINE = "a part of this left out", "this line left out"
EVERYWHERE = "another name here, in each place"
MISSING, MERGED = "this only if nothing is passed", "these in the other order"
START = "another initial value here"
SLICE = "a slice here as in another place"
FACTOR, HIDDEN, TIMES = "one more factor here", "a mask as one more factor here", "this number times another one"
MOVED, TERM = "a factor here on the other term", "one more factor in this term"
BOTH = "another operator and another operand here"
COPY, NEW = "a copy here", "the operation here that changes nothing in place"
UNUSED, ALIKE = "a layer here that nothing else uses", "the same argument here as in another call"
# Those with a low rank are tried first; another kind has 0.
RANKS = {
    **dict.fromkeys((MISSING, MERGED, START), -1),  # of which there are few
    **dict.fromkeys((NAME, NUMBER, ONE_MORE, ARGUMENTS), 1),  # of which there are many in every line
    **dict.fromkeys((SIDES, NAMES, UNUSED, COPY, REST), 2),  # which are seldom right
    **dict.fromkeys((NOTHING, LINE, FACTOR, HIDDEN, ALIKE), 3),  # which may make up for a mistake
}

Slot = tuple[ast.AST, str, int | None]  # the position of a node: its parent, the field, the index in the field
Change = tuple[ast.AST, ast.AST, str]  # the node to mark, the new node for the slot, and the words


@dataclass(frozen=True)
class Changes:
    """Lists what may take the place of an expression or of a statement."""

    # gives, for a name, `self.x` or a number, the names of things of the same kind, those nearest to a line first
    list_alike: Callable[[str, int], Collection[str]]
    parameters: Mapping[str, Sequence[str]]  # of the functions and classes of the student's, by their names
    modules: Collection[str]  # the names that are imported
    is_counted: Callable[[ast.AST], bool]  # whether an expression is a number, or a tensor of whole numbers
    list_fractions: Callable[[int], Sequence[str]]  # gives the names of fractions, those nearest to a line first
    list_masks: Callable[[int], Sequence[str]]  # gives the names of tensors of True and False, nearest first
    names: Collection[str]  # what may be passed for a parameter of this name
    unused: Collection[str]  # attributes that a constructor makes, and that no method reads
    calls: Mapping[str, Sequence[ast.Call]]  # the calls in the file, by what they call
    unread: Collection[str]  # parameters that the function does not read
    inside: Sequence[ast.AST]  # all nodes in the function
    list_factors: Callable[[int], Sequence[str]]  # gives the names of fractions and of tensors of fractions
    list_defaults: Callable[[ast.Call], Mapping[str, Any]]  # gives the parameters for which a call passes nothing
    is_backward: bool  # whether the function is a backward pass: there any value may lack a factor

    def list_changes(self, slot: Slot) -> Iterator[Change]:
        """List the changes of the node in a slot."""
        node = get_node(slot)
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            list_own = getattr(self, f"_of_{type(node).__name__.lower()}", None)
            yield from list_own(node, slot) if list_own else ()
            yield from self._list_beside(node, slot)

    def _list_beside(self, node: ast.AST, slot: Slot) -> Iterator[Change]:
        """List the changes that depend on where a node stands."""
        above, field, _ = slot
        called = name_called(above) if field == "args" else ""
        is_element = isinstance(above, ast.List | ast.Tuple | ast.Return) or field == "args"
        is_element |= isinstance(above, ast.Assign) and not self.is_counted(node)
        if is_element and isinstance(node, ast.Name | ast.Subscript | ast.BinOp | ast.Call):
            yield node, ast.UnaryOp(ast.USub(), node), SIGN
        is_bound = isinstance(above, ast.Compare) or called in ("range", "arange")
        is_count = isinstance(above, ast.BinOp) and isinstance(above.op, ORDERED) and isinstance(node, NAMED)
        is_whole = isinstance(node, ast.BinOp | ast.UnaryOp) and (field == "args" or isinstance(above, ast.Assign))
        if is_bound or name_called(node) == "len" or ((is_whole or is_count) and self.is_counted(node)):
            yield from ((node, each, ONE_MORE) for each in list_next(node))
        if isinstance(node, ast.expr) and (field == "args" or isinstance(above, ast.Assign | ast.Return)):
            yield from ((node, make_call(name, node), UNUSED) for name in self.unused)
        is_kept = isinstance(above, ast.Assign) or field == "elt"
        if is_kept and (isinstance(node, NAMED) or name_called(node) in VIEWS) and isinstance(node, ast.expr):
            yield from ((node, each, COPY) for each in list_copies(node))
        is_factor = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult)
        if isinstance(node, NAMED) and (is_factor or field == "args") and not self.is_counted(node):
            yield node, ast.BinOp(ast.Constant(1), ast.Add(), node), ONE_MORE
        is_share = isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in self.list_fractions(node.lineno)
        if isinstance(node, ast.expr) and (called in OF_SHARES or (is_share and not isinstance(above, ast.Attribute))):
            yield node, ast.BinOp(ast.Constant(1), ast.Sub(), node), REST
        is_number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        if is_number or isinstance(node, ast.Slice) or (isinstance(node, ast.Call) and self.is_counted(node)):
            marked = above if isinstance(node, ast.Slice) else node
            yield from ((marked, ast.Name(each, ast.Load()), NAME) for each in self.unread)
        is_value = isinstance(above, ast.stmt) and field == "value"
        if isinstance(node, ast.Name) and is_value and self.is_counted(node):
            yield from ((node, ast.BinOp(node, ast.Mult(), each), TIMES) for each in self._list_names(node))
        if isinstance(above, ast.AugAssign) and isinstance(node, ast.Constant):
            yield from ((node, name, NAME) for name in self._list_names(node))
        if is_value and isinstance(node, ast.BinOp | ast.Call) and not self.is_counted(node):
            yield from ((node, each, FACTOR) for each in self._list_products(node))
            yield from ((node, each, HIDDEN) for each in self._list_hidden(node))
        is_term = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add | ast.Sub) and not self.is_counted(node)
        is_of_gradient = self.is_backward and (is_value or field in OPERANDS)
        if isinstance(node, (*NAMED, ast.BinOp, ast.Call)) and (is_term or is_of_gradient):
            words = TERM if is_term and isinstance(node, NAMED) else FACTOR
            factors = self._list_new_factors(node.lineno, *[above] * is_term)
            yield from ((node, ast.BinOp(node, ast.Mult(), each), words) for each in factors)
        if isinstance(node, NAMED) and isinstance(above, ast.Attribute) and above.attr == "add_":
            shrink = ast.Attribute(node, "mul_", ast.Load())
            line = [each for each in self.inside if isinstance(each, ast.Expr) and each.lineno == node.lineno]
            factors = self._list_new_factors(node.lineno, *line)
            yield from ((node, ast.Call(shrink, [each], []), TERM) for each in factors)
        is_sum = isinstance(node, ast.BinOp | ast.Compare) and not isinstance(above, ast.BinOp | ast.Compare)
        if isinstance(node, ast.expr) and (is_sum or (isinstance(above, ast.stmt) and field == "value")):
            yield from self._list_renamed(node, is_sum)

    def _list_new_factors(self, line: int, *nodes: ast.AST) -> list[ast.expr]:
        """List the fractions, and tensors of them, that do not stand in some nodes: those nearest to a line first."""
        there = {ast.unparse(each) for node in nodes for each in ast.walk(node)}
        names = [name for name in self.list_factors(line) if name not in there]
        return [ast.parse(name, mode="eval").body for name in names[:MOST_FACTORS]]

    def _list_renamed(self, node: ast.expr | ast.Assign, is_sum: bool) -> Iterator[Change]:
        """List a node with another name wherever one stands in it; or, of a sum, with two exchanged."""
        names = Counter(ast.unparse(each) for each in ast.walk(node) if isinstance(each, NAMED))
        own = ast.walk(node.targets[0] if isinstance(node, ast.Assign) else node)  # of `q, v = f(q, v)`, q and v
        renamed = {ast.unparse(each) for each in own if isinstance(each, NAMED)}
        for one, count in [(one, names[one]) for one in names if one in renamed]:
            for other in [*self.list_alike(one, node.lineno)][:MOST_NAMES]:
                if (is_sum and other in names) or (count > 1 and other not in names):
                    words = NAMES if other in names else EVERYWHERE
                    yield node, Exchange(one, other).visit(copy_whole(node)), words

    def _list_products(self, node: ast.expr) -> Iterator[ast.BinOp]:
        """List a value times a fraction x, divided by x, and divided by 1 − x."""
        for name in self.list_fractions(node.lineno)[:MOST_FACTORS]:
            x = ast.parse(name, mode="eval").body
            if name not in map(ast.unparse, ast.walk(node)):
                yield ast.BinOp(node, ast.Mult(), x)
                yield ast.BinOp(node, ast.Div(), x)
            yield ast.BinOp(node, ast.Div(), ast.BinOp(ast.Constant(1), ast.Sub(), x))

    def _list_hidden(self, node: ast.expr) -> Iterator[ast.BinOp]:
        """List a value that is 0 where a mask is False, and where it is True."""
        for name in self.list_masks(node.lineno)[:MOST_FACTORS]:
            mask = ast.parse(name, mode="eval").body
            yield from (ast.BinOp(node, ast.Mult(), each) for each in (mask, ast.UnaryOp(ast.Invert(), mask)))

    def _of_name(self, node: ast.Name | ast.Attribute, slot: Slot) -> Iterator[Change]:
        yield from ((node, name, NAME) for name in self._list_names(node))

    _of_attribute = _of_name

    def _of_subscript(self, node: ast.Subscript, _: Slot) -> Iterator[Change]:
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            yield from ((node, name, NAME) for name in self._list_names(node))

    def _list_names(self, node: ast.expr, most: int = MOST_NAMES) -> list[ast.expr]:
        """List the names that may take the place of a name or a number."""
        names = [*self.list_alike(ast.unparse(node), node.lineno)][:most]
        return [ast.parse(name, mode="eval").body for name in dict.fromkeys((*names, *self.unread))]

    def _of_constant(self, node: ast.Constant, slot: Slot) -> Iterator[Change]:
        marked = slot[0] if isinstance(slot[0], ast.UnaryOp) else node
        match node.value:
            case bool(x):
                yield node, ast.Constant(not x), OPPOSITE
            case int(x):
                others = {x + 1, x - 1, -x, 2 * x, *((-1, -2) if _is_axis(slot) else ())} - {x}
                yield from ((marked, ast.Constant(each), NUMBER) for each in others)
            case float(x):
                yield from ((marked, ast.Constant(each), NUMBER) for each in {-x, 1 - x, 2 * x, x / 2} - {x})
                if x == 0:
                    yield node, ast.Constant(-math.inf), START
            case str(x) if isinstance(slot[0], ast.Call | ast.Assign) and "->" in x:
                yield from ((node, ast.Constant(each), ORDER) for each in list_patterns(x))
            case str(x) if x in OTHER:
                yield node, ast.Constant(OTHER[x]), OPTION

    def _of_binop(self, node: ast.BinOp, _: Slot) -> Iterator[Change]:
        left, op, right = node.left, node.op, node.right
        yield from ((node, ast.BinOp(left, each(), right), OPERATOR) for each in OPERATORS.get(type(op), ()))  # type: ignore[arg-type]
        if isinstance(op, ast.FloorDiv | ast.Mod) and isinstance(right, NAMED):
            other = OPERATORS[type(op)][0]()
            names = (each for each in self._list_names(right, MOST_COUNTS) if isinstance(each, ast.Name))
            yield from ((node, ast.BinOp(left, other, name), BOTH) for name in names)  # type: ignore[arg-type]
        if isinstance(op, ast.FloorDiv | ast.Mod) and isinstance(right, ast.BinOp):  # `i % (n // 2)` for `i // 2`
            yield node, ast.BinOp(left, OPERATORS[type(op)][0](), right.right), BOTH  # type: ignore[arg-type]
        if isinstance(op, ORDERED):
            yield node, ast.BinOp(right, op, left), SIDES
        if isinstance(op, ast.Add | ast.Sub):
            yield from ((node, each, MOVED) for each in list_moved(node))
        if isinstance(op, ast.BitAnd | ast.BitOr):
            yield right, ast.BinOp(left, op, ast.UnaryOp(ast.Invert(), right)), OPPOSITE
            yield left, ast.BinOp(ast.UnaryOp(ast.Invert(), left), op, right), OPPOSITE
        if isinstance(op, ast.MatMult):
            yield node, ast.BinOp(transpose(left), op, right), TURNED
            yield node, ast.BinOp(left, op, transpose(right)), TURNED
        yield from ((node, side, NOTHING) for side in (left, right))

    def _of_compare(self, node: ast.Compare, _: Slot) -> Iterator[Change]:
        others = OPERATORS.get(type(node.ops[0]), ()) if len(node.ops) == 1 else ()
        yield from ((node, ast.Compare(node.left, [each()], node.comparators), COMPARISON) for each in others)  # type: ignore[list-item]

    def _of_boolop(self, node: ast.BoolOp, _: Slot) -> Iterator[Change]:
        yield from ((node, ast.BoolOp(each(), node.values), OPERATOR) for each in OPERATORS[type(node.op)])  # type: ignore[arg-type]
        yield from ((node, each, NOTHING) for each in node.values)

    def _of_unaryop(self, node: ast.UnaryOp, _: Slot) -> Iterator[Change]:
        if isinstance(node.operand, ast.Constant):
            yield from ((node, name, NAME) for name in self._list_names(node))
        yield node, node.operand, SIGN if isinstance(node.op, ast.USub) else OPPOSITE

    def _of_ifexp(self, node: ast.IfExp, _: Slot) -> Iterator[Change]:
        yield node, ast.IfExp(node.test, node.orelse, node.body), SIDES
        yield from ((node, each, NOTHING) for each in (node.body, node.orelse))

    def _of_tuple(self, node: ast.Tuple | ast.List, _: Slot) -> Iterator[Change]:
        yield from ((node, type(node)(each, ast.Load()), ORDER) for each in list_exchanges(node.elts))

    _of_list = _of_tuple

    def _of_set(self, node: ast.Set, _: Slot) -> Iterator[Change]:
        yield from ((node, ast.Set([other for other in node.elts if other is not each]), NOTHING) for each in node.elts)

    def _of_dict(self, node: ast.Dict, _: Slot) -> Iterator[Change]:
        words = MERGED if None in node.keys else ORDER
        yield from ((node, ast.Dict(node.keys, each), words) for each in list_exchanges(node.values))

    def _of_slice(self, node: ast.Slice, slot: Slot) -> Iterator[Change]:
        lower, upper, marked = node.lower, node.upper, slot[0]
        yield from ((marked, ast.Slice(each, upper, node.step), ONE_MORE) for each in list_next(lower, 1))
        yield from ((marked, ast.Slice(lower, each, node.step), ONE_MORE) for each in list_next(upper, -1))
        if lower or upper:
            yield marked, ast.Slice(upper, lower, node.step), SIDES
            yield from ((marked, each, NOTHING) for each in (ast.Slice(None, upper), ast.Slice(lower, None)))
        others = [each for each in self.inside if isinstance(each, ast.Slice) and (each.lower or each.upper)]
        texts = {ast.unparse(each): each for each in others}
        yield from ((marked, each, SLICE) for text, each in texts.items() if text != ast.unparse(node))
        if bool(lower) != bool(upper):
            other = ast.UnaryOp(ast.USub(), lower or upper)  # type: ignore[arg-type]  (one of them is there)
            yield marked, ast.Slice(other, None) if upper else ast.Slice(None, other), OTHER_END

    def _of_call(self, node: ast.Call, _: Slot) -> Iterator[Change]:
        func, arguments, keywords = node.func, node.args, node.keywords
        name, owner = name_called(node), func.value if isinstance(func, ast.Attribute) else None
        is_method = owner is not None and not (isinstance(owner, ast.Name) and owner.id in {*self.modules, "self"})
        if name in OTHER:
            field = {"attr" if isinstance(func, ast.Attribute) else "id": OTHER[name]}
            yield node, ast.Call(change_fields(func, **field), arguments, keywords), FUNCTION
        parameters, texts = self.parameters.get(name, ()), [*map(ast.unparse, arguments)]
        if not any(isinstance(each, ast.Starred) for each in arguments):
            right = {each for each, text, its in zip(arguments, texts, parameters, strict=False) if text == its}
            for each in list_exchanges(arguments):
                if not right.issuperset(one for one, other in zip(arguments, each, strict=True) if one is not other):
                    yield node, ast.Call(func, each, keywords), ARGUMENTS
        for number, each in enumerate(parameters[: len(arguments)]):
            if each in self.names and each not in texts:
                more = [*arguments[:number], ast.Name(each, ast.Load()), *arguments[number:]]
                yield node, ast.Call(func, more, keywords), MORE
        yield from ((node, add_keyword(node, each, value), MORE) for each, value in self._list_unpassed(node))
        yield from ((node, each, ALIKE) for each in list_as_in(node, self.calls.get(ast.unparse(func), ())))
        for values in list_exchanges([each.value for each in keywords]):
            new = [ast.keyword(each.arg, value) for each, value in zip(keywords, values, strict=True)]
            yield node, ast.Call(func, arguments, new), ARGUMENTS
        if name in ("var", "std") and not any(each.arg in ("unbiased", "correction", "ddof") for each in keywords):
            for option, value in (("unbiased", False), ("ddof", 1)):  # of torch and of NumPy
                yield node, ast.Call(func, arguments, [*keywords, ast.keyword(option, ast.Constant(value))]), OPTION
        if name in OF_ZEROS:
            yield node, ast.BinOp(node, ast.Sub(), ast.Constant(math.inf)), START
        if name == "gelu" and not keywords:
            yield node, ast.Call(func, arguments, [ast.keyword("approximate", ast.Constant("tanh"))]), OPTION
        if isinstance(func, ast.Attribute) and func.attr.endswith("_") and not func.attr.endswith("__"):
            yield node, ast.Call(change_fields(func, attr=func.attr[:-1]), arguments, keywords), NEW
        fewer = ([other for other in keywords if other is not each] for each in keywords if each.arg in AXES)
        yield from ((node, ast.Call(func, arguments, each), NOTHING) for each in fewer)
        if is_method and isinstance(func, ast.Attribute):
            yield from ((node, each, FUNCTION) for each in list_repeated(func, arguments, keywords))
        inner = owner if is_method else arguments[0] if arguments else None
        if inner and not isinstance(inner, ast.Starred):
            yield node, inner, NOTHING

    def _list_unpassed(self, node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """List what a call may pass for parameters for which it passes nothing."""
        parameters, defaults = self.parameters.get(name_called(node), ()), self.list_defaults(node)
        missing = [each for each in (*parameters[len(node.args) :], *defaults) if each in self.names]
        for each in dict.fromkeys((*missing, *self.unread)):
            if each not in [its.arg for its in node.keywords]:
                yield each, ast.Name(each, ast.Load())
        for each, default in defaults.items():
            if isinstance(default, bool):
                yield each, ast.Constant(not default)
            elif isinstance(default, int):
                yield from ((each, name) for name in self._list_names(ast.copy_location(ast.Constant(default), node)))

    def _of_augassign(self, node: ast.AugAssign, _: Slot) -> Iterator[Change]:
        for each in OPERATORS.get(type(node.op), ()):
            yield node, ast.AugAssign(node.target, each(), node.value), OPERATOR  # type: ignore[arg-type]
        yield node, ast.Assign([node.target], node.value), OPERATOR
        yield node, ast.Pass(), LINE
        for each in self._list_new_factors(node.lineno, node) if isinstance(node.op, ast.Add) else ():
            shrunk = ast.BinOp(change_fields(node.target, ctx=ast.Load()), ast.Mult(), each)
            yield node, ast.Assign([node.target], ast.BinOp(shrunk, node.op, node.value)), TERM

    def _of_assign(self, node: ast.Assign, _: Slot) -> Iterator[Change]:
        names = {each.id for each in node.targets if isinstance(each, ast.Name)} & count_read(node.value).keys()
        if names:
            yield node, ast.Pass(), LINE
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Call | ast.Tuple):
            yield from self._list_renamed(node, is_sum=False)
        target, parameters = node.targets[0], {each.arg for each in self.inside if isinstance(each, ast.arg)}
        if isinstance(target, ast.Name) and target.id in parameters - names:
            given = ast.Name(target.id, ast.Load())
            is_missing = ast.Compare(given, [ast.Is()], [ast.Constant(None)])
            yield node.value, ast.Assign(node.targets, ast.IfExp(is_missing, node.value, given)), MISSING
        if isinstance(target, ast.Subscript):
            yield node, ast.AugAssign(target, ast.Add(), node.value), OPERATOR
        for each in list_exchanges(target.elts) if isinstance(target, ast.Tuple) else ():
            yield target, ast.Assign([ast.Tuple(each, ast.Store())], node.value), ORDER

    def _of_expr(self, node: ast.Expr, _: Slot) -> Iterator[Change]:
        owner = getattr(getattr(node.value, "func", None), "value", None)
        if isinstance(owner, ast.Name) and owner.id not in self.modules:
            yield node, ast.Assign([ast.Name(owner.id, ast.Store())], node.value), KEPT
        yield node, ast.Return(node.value), RETURNED
        yield node, ast.Pass(), LINE

    def _of_if(self, node: ast.If, _: Slot) -> Iterator[Change]:
        yield node.test, ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse), OPPOSITE


def get_node(slot: Slot) -> ast.AST:
    above, name, number = slot
    value = getattr(above, name)
    return value if number is None else value[number]


def _is_axis(slot: Slot) -> bool:
    """Tell whether the node in a slot is the number of an axis: in `x.shape[0]`, `x.size(0)` or `x.sum(dim=0)`."""
    above = slot[0]
    named = isinstance(above, ast.keyword) and above.arg in AXES
    return named or name_called(above) == "size" or getattr(getattr(above, "value", None), "attr", "") == "shape"
