"""Expressions that are made of another one: calls of it, copies, neighbours, other orders, other arguments."""

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

NAMED = (ast.Name, ast.Attribute, ast.Subscript)  # what stands for a value
MOST_AXES = 8  # of an operand of einsum


def change_fields(node: ast.expr, **fields: object) -> ast.expr:
    """Copy a node with other fields."""
    new = copy.copy(node)
    vars(new).update(fields)
    return new


def make_call(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(ast.parse(name, mode="eval").body, [argument], [])


def list_copies(node: ast.expr) -> list[ast.expr]:
    """List copies of a value that other code may change: of a tensor, and of a list or an array."""
    copier = ast.parse("__import__('copy').copy", mode="eval").body
    return [ast.Call(ast.Attribute(node, "clone", ast.Load()), [], []), ast.Call(copier, [node], [])]


def transpose(x: ast.expr) -> ast.expr:
    return ast.Attribute(x, "mT", ast.Load())


def name_called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    func = getattr(node, "func", None)
    return getattr(func, "attr", getattr(func, "id", ""))


def list_repeated(
    func: ast.Attribute, arguments: list[ast.expr], keywords: Sequence[ast.keyword]
) -> Iterator[ast.Call]:
    """List a tensor repeated as a whole in place of each element, `repeat_interleave`, and the other way round."""
    several = [i for i, each in enumerate(arguments) if ast.unparse(each) != "1"]
    axis = [*arguments[1:], *(each.value for each in keywords)]
    if func.attr == "repeat_interleave" and arguments and len(axis) == 1:
        cat = ast.parse("__import__('torch').cat", mode="eval").body
        yield ast.Call(cat, [ast.BinOp(ast.List([func.value], ast.Load()), ast.Mult(), arguments[0]), axis[0]], [])
    elif func.attr == "repeat" and len(several) == 1 < len(arguments):
        at = ast.Constant(several[0] - len(arguments))
        yield ast.Call(change_fields(func, attr="repeat_interleave"), [arguments[several[0]], at], [])


def list_next(bound: ast.AST | None, default: int | None = None) -> list[ast.expr]:
    """List a bound plus one and minus one; the bound of a slice may be missing."""
    if bound is None:
        return [ast.Constant(default)]
    if not isinstance(bound, ast.expr) or isinstance(bound, ast.Constant):  # a constant has its own changes
        return []
    return [ast.BinOp(bound, op, ast.Constant(1)) for op in (ast.Add(), ast.Sub())]


def list_moved(node: ast.BinOp) -> Iterator[ast.BinOp]:
    """List a sum with a factor of one term moved to the other term: of `a + x * b`, `a * x + b`."""
    for term, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
            for factor, rest in ((term.left, term.right), (term.right, term.left)):
                product = ast.BinOp(other, ast.Mult(), factor)
                yield ast.BinOp(rest, node.op, product) if term is node.left else ast.BinOp(product, node.op, rest)


def list_exchanges(elements: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
    """List the orders of the elements in which two are exchanged."""
    for i, j in combinations(range(len(elements)), 2):
        new = [*elements]
        new[i], new[j] = new[j], new[i]
        yield new


def add_keyword(call: ast.Call, name: str, value: ast.expr) -> ast.Call:
    return ast.Call(call.func, call.args, [*call.keywords, ast.keyword(name, value)])


def list_as_in(call: ast.Call, others: Sequence[ast.Call]) -> Iterator[ast.Call]:
    """List a call with an argument of another call, in place of its own or as one more."""
    for other in others:
        for number, (own, its) in enumerate(zip(call.args, other.args, strict=False)):
            if ast.unparse(own) != ast.unparse(its):
                yield ast.Call(call.func, [*call.args[:number], its, *call.args[number + 1 :]], call.keywords)
        if rest := other.args[len(call.args) :]:
            yield ast.Call(call.func, [*call.args, *rest], call.keywords)
        given = {None, *(each.arg for each in call.keywords)}
        more = [each for each in other.keywords if each.arg not in given]
        yield from (ast.Call(call.func, call.args, [*call.keywords, each]) for each in more)


def list_patterns(text: str) -> Iterator[str]:
    """The pattern of einsum or einops with two axes of one operand, or of the result, exchanged."""
    terms = re.split("(->|,)", text)
    axis = r"\w+" if any(" " in each.strip() for each in terms) else r"\w"
    for number, term in enumerate(terms):
        axes = [each for each in re.finditer(axis, term) if each.group() != "1"]
        for one, other in combinations(axes[:MOST_AXES], 2):
            between = term[one.end() : other.start()]
            new = f"{term[: one.start()]}{other.group()}{between}{one.group()}{term[other.end() :]}"
            yield "".join((*terms[:number], new, *terms[number + 1 :]))


class Exchange(ast.NodeTransformer):
    """Exchanges expressions by their texts."""

    def __init__(self, one: str, other: str) -> None:
        self._texts = {one: other, other: one}

    def visit(self, node: ast.AST) -> ast.AST:
        text = ast.unparse(node) if isinstance(node, NAMED) else ""
        if text not in self._texts or not isinstance(node, NAMED):
            return super().visit(node)
        return change_fields(ast.parse(self._texts[text], mode="eval").body, ctx=node.ctx)


def count_read(node: ast.AST) -> Counter[str]:
    """Count how often names are read in a node."""
    return Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
