"""Other orders: of elements and arguments, and of the axes in a pattern of einsum or einops."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import combinations

MOST_AXES = 8  # of an operand of einsum


def list_exchanges(elements: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
    """List the orders of the elements in which two are exchanged."""
    for i, j in combinations(range(len(elements)), 2):
        new = [*elements]
        new[i], new[j] = new[j], new[i]
        yield new


def order_by_names(arguments: Sequence[ast.expr], parameters: Sequence[str]) -> Iterator[list[ast.expr]]:
    """The arguments in the order of the parameters of these names, where that is no exchange of two."""
    by_name = {getattr(each, "id", getattr(each, "attr", "")): each for each in arguments}
    names = [*parameters[: len(arguments)]]
    if len(by_name) == len(arguments) > 2 and {*by_name} == {*names} and [*by_name] != names:
        yield [by_name[name] for name in names]


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
