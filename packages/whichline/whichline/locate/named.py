"""Reading a reference: the names of its values, a tutor's questions about them, and which values are counterparts.

    # 3 Distances
    def run_distances(x, y):
        offsets = x[:, None] - y  #: the offsets. Of which point from which?

A value is named by a `#:` comment on its line or above it, or else by its variable. The text after the first full stop
is the question. A comment that is only a question belongs to all values up to the next blank line. A comment that
begins with a number names the section of the handout.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product

from whichline.engine.assignment import PROBLEMS
from whichline.engine.problem_folder import REFERENCE

STACK = "torch.stack"
SECTION = re.compile(r"# (\w*\d\w* \S.*)")
Span = tuple[int, int, int, int]  # of an expression: first line, last line, first column, end column


@dataclass(frozen=True, eq=False)
class Named:
    """An expression whose value has a name."""

    variable: str  # that it is assigned to; "" if it is returned
    text: str  # the name; the call is named at `{}`, or else at the end
    ask: str  # a tutor's question to a student who has another value
    section: str  # of the handout
    node: ast.expr
    is_written: bool  # whether a comment gives the name

    @property
    def is_answer(self) -> bool:
        """Tell whether the expression is returned."""
        return not self.variable

    @cached_property
    def reads(self) -> set[str]:
        return list_variables(self.node)

    def write(self, where: str) -> str:
        """Name the value in one call, which `where` names: " of the keys"."""
        if "{}" not in self.text:
            return self.text + where
        return self.text.replace(" of {}", where).replace("{}", where.removeprefix(" of "))


@dataclass(frozen=True)
class Site:
    """A call of a function that a reference defines."""

    node: ast.Call
    role: str  # which of several calls in one function it is, by the name of its result: "the offsets"; or ""
    differing: frozenset[int | str]  # positions and names of the arguments that differ between these calls

    def pass_on(self, variables: set[str], parameters: Sequence[str]) -> set[str]:
        """Return the parameters whose arguments contain one of these variables."""
        return {name for _, name, value in self._bind(parameters) if variables & list_variables(value)}

    def find_differing(self, parameters: Sequence[str]) -> set[str]:
        """Return the parameters whose arguments differ between the calls."""
        return {name for place, name, _ in self._bind(parameters) if place in self.differing}

    def _bind(self, parameters: Sequence[str]) -> Iterator[tuple[int | str, str, ast.expr]]:
        yield from ((i, *both) for i, both in enumerate(zip(parameters, self.node.args, strict=False)))
        yield from ((each.arg, each.arg, each.value) for each in self.node.keywords if each.arg)


@dataclass
class Function:
    """A function of a reference."""

    parameters: list[str]
    # for each assignment, the variables that it sets and those that it reads
    assignments: list[tuple[set[str], set[str]]] = field(default_factory=list)
    # for each loop, from the outermost on: its first and last line, and the name of one turn
    loops: list[tuple[int, int, str]] = field(default_factory=list)
    sites: dict[Span, Site] = field(default_factory=dict)  # its calls of functions that a reference defines

    def spread(self, variables: set[str]) -> set[str]:
        """Return these variables, and all that are computed from them."""
        while more := {new for sets, reads in self.assignments if reads & variables for new in sets} - variables:
            variables = variables | more
        return variables


class NamedFile:
    """A reference's file, as it can be read without running it.

    Attributes:
        values: the expressions that have a name, by position.
        functions: by name.
    """

    def __init__(self, source: str) -> None:
        self._comments, self._sections = _read_comments(source)
        tree = ast.parse(source)
        nodes = [*ast.walk(tree)]
        self.values = {span_of(each.node): each for node in nodes for each in self._read_name(node)}
        imports = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
        functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
        calls = (each for each in nodes if isinstance(each, ast.Call) and ast.unparse(each.func) == STACK)
        self._stacked = [each.args[0].elts for each in calls if isinstance(each.args[0], ast.Tuple | ast.List)]
        callees = {each.name for each in functions}
        callees |= {each.asname or each.name for node in imports if is_reference(node.module) for each in node.names}
        self.functions = {each.name: self._read_function(each, callees) for each in functions}

    def _read_name(self, node: ast.AST) -> Iterator[Named]:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            variable, value = node.targets[0].id, node.value
        elif isinstance(node, ast.Return) and node.value:
            variable, value = "", node.value.elts[0] if isinstance(node.value, ast.Tuple) else node.value
        else:
            return
        text, _, ask = self._read_comment(node).partition(". ")
        section = next((each for line, each in reversed(self._sections) if line < node.lineno), "")
        text, default = text.removesuffix("."), name_variable(variable) if variable else "the answer"
        yield Named(variable, text or default, ask, section, value, bool(text))

    def _read_comment(self, node: ast.stmt) -> str:
        """Return the comment on a statement."""
        texts = [self._comments.get(line, "") for line in (node.lineno, node.end_lineno or 0)]
        return next((each for each in texts if each.partition(". ")[0]), texts[0])

    def _read_function(self, node: ast.FunctionDef, callees: set[str]) -> Function:
        function = Function([each.arg for each in (*node.args.args, *node.args.kwonlyargs)])
        calls: dict[str, list[tuple[ast.Call, str, bool]]] = {}
        for each in (inner for inner in ast.walk(node) if isinstance(inner, ast.stmt)):
            if isinstance(each, ast.Assign):
                sets = {name for target in each.targets for name in list_variables(target)}
                function.assignments.append((sets, list_variables(each.value)))
            elif isinstance(each, ast.For):
                function.loops.append((each.lineno, each.end_lineno or 0, self._comments.get(each.lineno) or "turn"))
                function.assignments.append((list_variables(each.target), list_variables(each.iter)))
            for call, callee in _list_calls(each):
                if callee in callees:
                    calls.setdefault(callee, []).append((call, *self._read_role(each, call)))
        function.loops.sort()
        for several in calls.values():
            # If a comment gives one call a role, the variables of the other calls are no roles.
            are_written = any(role and is_written for _, role, is_written in several)
            differing = _find_differing([call for call, _, _ in several])
            for call, role, is_written in several:
                has_role = len(several) > 1 and is_written == are_written
                function.sites[span_of(call)] = Site(call, role if has_role else "", differing)
        return function

    def _read_role(self, statement: ast.stmt, call: ast.Call) -> tuple[str, bool]:
        """Return the role of a call, and whether a comment gives it; a call whose result is unused has a comment."""
        if isinstance(statement, ast.Expr) and statement.value is call:
            return self._read_comment(statement).partition(". ")[0], True
        if isinstance(statement, ast.Assign) and statement.value is call:
            return name_variable(statement.targets[0].id) if isinstance(statement.targets[0], ast.Name) else "", False
        return "", False

    def list_counterparts(self) -> Iterator[tuple[str, str]]:
        """List the pairs of words that are counterparts in names, as "keys" and "values".

        They differ between the roles of two calls of one function, or between two values that `torch.stack` joins.
        """
        for function in self.functions.values():
            for one, other in combinations(function.sites.values(), 2):
                if isinstance(one.node.func, ast.Name) and ast.dump(one.node.func) == ast.dump(other.node.func):
                    yield from _list_differing(one.role, other.role)
        names: dict[str, set[str]] = {}
        for each in self.values.values():
            names.setdefault(each.variable, set()).add(each.text)
        for parts in self._stacked:
            for one, other in combinations([list_variables(part) & names.keys() for part in parts], 2):
                for pair in product(*([text for each in found for text in names[each]] for found in (one, other))):
                    yield from _list_differing(*pair)


def _list_differing(one: str, other: str) -> Iterator[tuple[str, str]]:
    """Yield the words in which two names differ, if it is one word in each."""
    both = one.split(), other.split()
    differing = [pair for pair in zip(*both, strict=False) if pair[0] != pair[1]]
    if len(both[0]) == len(both[1]) and len(differing) == 1:
        yield differing[0]


def _list_calls(statement: ast.stmt) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls of plain names in a statement, without those in statements inside it."""
    todo = [*ast.iter_child_nodes(statement)]
    while todo:
        node = todo.pop(0)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node, node.func.id
        todo += [] if isinstance(node, ast.stmt) else ast.iter_child_nodes(node)


def _find_differing(calls: Sequence[ast.Call]) -> frozenset[int | str]:
    """Return the positions and names of the arguments that differ between calls."""
    given: dict[int | str, list[str]] = {}
    for call in calls:
        for place, value in (*enumerate(call.args), *((each.arg or "", each.value) for each in call.keywords)):
            given.setdefault(place, []).append(ast.dump(value))
    return frozenset(place for place, texts in given.items() if len(texts) < len(calls) or len(set(texts)) > 1)


def _read_comments(source: str) -> tuple[Mapping[int, str], Sequence[tuple[int, str]]]:
    """Return the `#:` comments by the lines of their statements, and the sections with the lines of their headings."""
    comments: dict[int, str] = {}
    sections: list[tuple[int, str]] = []
    above, question = "", ""
    for number, line in enumerate(source.splitlines(), 1):
        code, mark, text = line.partition("#:")
        if heading := SECTION.fullmatch(line):
            sections.append((number, heading[1]))
        elif not line.strip():
            question = ""
        elif mark and not code.strip():
            above = f"{above} {text.strip()}".strip()
            if above.endswith("?") and ". " not in above:
                above, question = "", above
        else:
            comments[number] = above or text.strip()
            if question and ". " not in comments[number]:
                comments[number] += f". {question}"
            above = ""
    return comments, sections


def is_reference(module: str | None) -> bool:
    """Tell whether a module is the reference of a problem."""
    return bool(re.fullmatch(rf"{PROBLEMS}\.\w+\.(staff\.)?{REFERENCE}", module or ""))


def name_variable(name: str) -> str:
    return "the " + name.replace("_", " ")


def list_variables(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def span_of(node: ast.AST) -> Span:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]  (a part of a line)
