"""The lines that ran in one call, each with a mark: right, wrong, computed from a wrong value, or unknown."""

import ast
import linecache
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from whichline.engine.finding import Finding
from whichline.locate.observed import Observed
from whichline.locate.probe import Expression
from whichline.locate.source_location import find_columns, name_file
from whichline.locate.trace import Trace

RIGHT, WRONG, FOLLOWS, UNKNOWN = "✓✗· "
Spot = tuple[str, int]  # file and line


@dataclass(frozen=True)
class Line:
    """One line of a function."""

    number: int
    text: str
    mark: str  # of the statement that begins here, or of a wrong expression in the line
    places: Sequence[Expression]  # the outermost expressions of the statement that ends here, if their values are known
    ran: bool  # whether its statement computed a number


@dataclass
class MarkedLines:
    """The lines of one run, with marks."""

    trace: Trace
    observed: Observed  # the copy of the code that ran
    findings: Sequence[Finding]
    root: Path  # the files of the findings are relative to this folder
    raised: Collection[Spot] = ()  # the lines in an error's traceback, which have no value

    def functions(self) -> Iterator[tuple[str, str, list[Line]]]:
        """Yield the file, name and lines of each function that computed more than sizes, in the order of the run."""
        for file, function in dict.fromkeys((place.file, place.function) for place in self.trace.order):
            if definition := self.observed.definitions.get((file, function)):
                lines = list(self._list_lines(file, function, definition))
                values = [x for line in lines for place in line.places for x in self.trace.objects[place]]
                is_wrong = any(line.mark in (WRONG, FOLLOWS) or (file, line.number) in self.raised for line in lines)
                if is_wrong or not all(isinstance(x, int) for x in values):
                    yield file, function, lines

    def _list_lines(self, file: str, function: str, definition: ast.FunctionDef) -> Iterator[Line]:
        """Yield a function's lines up to an error, without comments, docstrings, imports and inner functions."""
        begins, left_out = _find_statements(definition)
        groups: dict[int, list[Expression]] = {}
        for place in self.trace.places:
            if (place.file, place.function) == (file, function):
                groups.setdefault(begins.get(place.line, place.line), []).append(place)
        ended = {begins.get(line, line) for other, line in self.raised if other == file} & begins.keys()
        for number in range(definition.lineno, (definition.end_lineno or 0) + 1):
            text = linecache.getline(file, number).rstrip()
            is_code = text.strip() and not text.lstrip().startswith("#") and number not in left_out
            is_wrong = (file, number) in self._wrong
            if not is_wrong and (not is_code or number not in range(definition.body[0].lineno, number + 1)):
                continue
            begin = begins.get(number, number)
            ran = begin in groups
            if ended and begin > max(ended) and not ran:
                continue
            places = self._find_outermost(groups[begin]) if ran and begin not in ended else []
            mark = WRONG if is_wrong else self._mark(places) if places and number == begin else UNKNOWN
            yield Line(number, text, mark, places if begins.get(number + 1) != begin else [], ran)

    def _mark(self, places: Sequence[Expression]) -> str:
        if all(map(self._is_right, places)):
            return RIGHT
        return FOLLOWS if any(place in self._follows for place in places if not self._is_right(place)) else UNKNOWN

    def _find_outermost(self, places: Sequence[Expression]) -> list[Expression]:
        """List a statement's outermost expressions, without truth values and names that are passed to a call."""
        inside = {id(node) for place in places for node in ast.walk(place.node) if node is not place.node}
        outermost = [place for place in places if id(place.node) not in inside]
        given = [each for each in outermost if isinstance(each.node, ast.Name) and id(each.node) in self._inside]
        truths = [each for each in outermost if isinstance(self.trace.objects[each][0], bool)]
        return [each for each in outermost if each not in given and each not in truths]

    @cached_property
    def _inside(self) -> set[int]:
        """The ids of all nodes that are part of a larger expression."""
        return {id(node) for place in self.observed.places for node in ast.walk(place.node) if node is not place.node}

    def _is_right(self, place: Expression) -> bool:
        """Tell whether an expression equals a checkpoint or an argument, or fills a tensor that does in the end."""
        match = self.trace.match(place)
        if match or self.trace.is_number(place):
            return bool(match) and "a size" not in match.names  # a size may be right by chance
        if not place.in_place:
            return self.trace.is_right(place)
        filled = self.trace.objects[place][-1]
        is_full = any(self.trace.match(each) for each in self.trace.places if filled is self.trace.objects[each][-1])
        return is_full and all(map(self.trace.is_right, self.trace.list_operands(place)))

    @cached_property
    def _wrong(self) -> set[Spot]:
        """The lines of the findings."""
        reported = {(each.file, line) for each in self.findings for line in (each.line, *each.likewise)}
        files = {place.file for place in self.observed.places}
        return {(file, line) for file in files for name, line in reported if name == name_file(file, self.root)}

    def _is_wrong(self, place: Expression) -> bool:
        """Tell whether a finding marks an expression."""
        if (place.file, place.line) not in self._wrong:
            return False
        at = place.line, find_columns(place.file, place.node)
        return any(place.line in each.likewise or at == (each.line, each.columns) for each in self.findings)

    @cached_property
    def _follows(self) -> set[Expression]:
        """The expressions that were computed from a wrong one, directly or through names, attributes and calls."""
        found: set[Expression] = set()
        now: dict[Expression, bool] = {}  # whether the last event of each followed from a wrong one
        wrong: set[Any] = set()
        times: dict[Expression, int] = {}
        for place in self.trace.order:
            time = times[place] = times.get(place, -1) + 1
            key = _identify(self.trace.objects[place][time])
            now[place] = key in wrong or self._is_wrong(place) or any(map(now.get, self.trace.list_operands(place)))
            if now[place]:
                found.add(place)
                wrong |= {key} - {None}
        return found


def _find_statements(definition: ast.FunctionDef) -> tuple[dict[int, int], set[int]]:
    """Return, for each line of a function, the line where its statement begins; also the lines not to show."""
    begins: dict[int, int] = {}
    left_out: set[int] = set()
    for node in ast.walk(definition):
        if not isinstance(node, ast.stmt) or node is definition:
            continue
        body = getattr(node, "body", [])
        end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
        begins |= dict.fromkeys(range(node.lineno, end + 1), node.lineno)
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return begins, left_out


def _identify(value: Any) -> Any:
    """Return a key: the identity of a tensor, the value of a number."""
    if isinstance(value, Tensor):
        return "tensor", id(value)
    return None if isinstance(value, bool) else value


def find_not_finite(trace: Trace) -> tuple[Expression, str] | None:
    """Find the first expression that holds NaN or infinity, and say which; −inf is normal in masks."""
    times: dict[Expression, int] = {}
    unset: set[int] = set()  # tensors of unwritten memory that the code has yet to fill
    for place in trace.order:
        time = times[place] = times.get(place, -1) + 1
        value, kept = trace.objects[place][time], trace.values[place][time]
        if not isinstance(value, Tensor):
            continue
        if place.is_unset:
            unset.add(id(value))
        if id(value) in unset and (place.in_place or isinstance(place.node, ast.Call)):
            continue
        kept = value.detach() if kept is None else kept
        for name, is_there in (("NaN", kept.isnan()), ("Infinity", kept == math.inf)):
            if bool(is_there.any()):
                return place, name
    return None
