"""Moving the mark of a mistake to what computes the wrong value, from what only takes, reshapes or returns it."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import not_
from typing import Any

import torch
from torch import Tensor

from whichline.engine.finding import MODULE
from whichline.locate.derived import name_called
from whichline.locate.difference import format_number
from whichline.locate.found import Found
from whichline.locate.known import Match
from whichline.locate.observed import Observed
from whichline.locate.probe import Expression
from whichline.locate.resemblance import SUMS
from whichline.locate.source_location import list_assignments, read_tree
from whichline.locate.trace import Trace
from whichline.locate.unpassed import find_unpassing
from whichline.locate.values import as_value, find_layout, is_mask, is_near, share_numbers

REORDERED = re.compile("the same numbers|in their order")
OF_TABLES = re.compile(r"axes .* exchanged|its negative|times that value")  # differences that are the same in all rows
OF_PATTERNS = re.compile(rf"{REORDERED.pattern}|found `\w*einsum` of")  # differences that a pattern explains
NOT_HIDDEN = re.compile("where −inf belongs")
INDEXING = ("index_select", "gather", "take_along_dim")
RESHAPING = ("reshape", "view", "flatten", "contiguous", "rearrange", "unsqueeze")
ALIKE = re.compile(rf"{REORDERED.pattern}|exchanged|its negative|that value")
# the differences for which it is a way, what it finds upstream of a place, and what the place does with that
Way = tuple[re.Pattern[str], Callable[[Trace, Expression], Expression | None], str]


def move_to_origin(observed: Observed, found: Found) -> Found:
    """Move the mark to where a wrong table is made of which rows are taken, the two values of a mask, or a number.

    The expression of a mask may only write these another way.
    """
    trace, (place, *others) = found.trace, found.patch
    step, words = trace.steps.get(found.option.names[0]), found.difference.words
    if (found.place.file, found.place.function) in trace.wrappers and (origin := _find_wrapped(found)):
        return replace(found, origin=origin, use="passes on")
    if not others and not found.shown and (origin := _find_stored(observed, place)):
        return replace(found, origin=origin, use="reads")
    if step is None or found.shown:
        return found
    if call := find_unpassing(observed, trace, place):
        return replace(found, shown=(call,))
    if others:
        find = _find_pattern if REORDERED.search(words) else _find_slice
        used = [find(observed, trace, each) for each in found.patch]
        is_one = len({(each.file, each.line) for each in used if each}) == 1 and all(used)
        return replace(found, origin=used[0], use="uses") if is_one else found
    ways: list[Way] = [
        (OF_TABLES, _find_table, "takes rows of"),
        (NOT_HIDDEN, partial(_find_low, observed, words), "uses"),
        (ALIKE, partial(_find_reshaped, not_), "reshapes"),
        (re.compile("another order"), partial(_find_reshaped, _is_in_another_order), "reshapes"),
        (REORDERED, _find_index, "takes rows by"),
        (re.compile("found (rows|`)"), partial(_find_slice, observed), "uses"),
        (ALIKE, _find_source, "uses"),
        (OF_PATTERNS, partial(_find_pattern, observed), "uses"),
        (re.compile(f"found `|{SUMS}"), partial(_find_partial, observed), "uses"),
        (re.compile("" if is_mask(step.value.tensor) else "(?!)"), _find_rewritten, "makes a mask of"),
    ]
    at, use = place, ""
    while moved := _move(ways, trace, at, words):
        at, use = moved[0], use or moved[1]
    return replace(found, origin=at, use=use) if use else found


def _move(ways: Sequence[Way], trace: Trace, place: Expression, words: str) -> tuple[Expression, str] | None:
    """Take the first of some ways upstream, and say what the place does with what is there."""
    tried = ((find(trace, place), use) for of, find, use in ways if place in trace.values and of.search(words))
    return next(((at, use) for at, use in tried if at), None)


def move_inside(found: Found) -> Found:
    """Move the mark into the function of the student's that computes a wrong value from the right arguments."""
    trace, place, (_, *others) = found.trace, found.place, found.patch
    is_one = place in trace.objects and not others and not found.shown and not found.has_other_arguments
    operands = trace.list_operands(place) if is_one and not trace.match(place) else []
    if all(map(trace.is_number, operands)):
        return found
    alike = [each for each in trace.places if each.called == place.called and each is not place]
    inside = find_returned(trace, place)
    is_its = inside is not None and all(map(trace.match, operands)) and not any(map(trace.match, alike))
    return replace(found, origin=inside, use="returns") if is_its else found


def find_returned(trace: Trace, place: Expression) -> Expression | None:
    """Find what computes that which a call of a function of the student's returns; it must run once."""
    values = trace.objects.get(place, []) if isinstance(place.node, ast.Call) else []
    inside = trace.list_inside(place) if len(values) == 1 else ()
    return next((each for each in inside if trace.objects[each][-1] is values[0] and not each.is_read), None)


def _find_wrapped(found: Found) -> Expression | None:
    """Find what computed the argument that a wrapper passes on."""
    trace, place = found.trace, found.place
    time = trace.find_first_wrong(next(iter(found.patch)))
    if time >= len(trace.values[place]):
        return None
    read = [each for each in (place, *trace.list_operands(place)) if each.is_read]
    value, given = as_value(trace.values[place][time]), [each for each in read if time < len(trace.values[each])]
    passed = [each for each in given if find_layout(as_value(trace.values[each][time]), value) is not None]
    origins = [trace.find_origin(each, time) for each in passed]
    return next((each for each in origins if not each.is_read and each.function != place.function), None)


def _find_stored(observed: Observed, place: Expression) -> Expression | None:
    """Find what is stored, in one line, in the dictionary at the top of the file of which an element is read."""
    name = ast.unparse(place.node.value) if isinstance(place.node, ast.Subscript) else ""
    if not isinstance(observed.find_namespace(place.file).get(name), dict):
        return None
    stored = [value for to, value in list_assignments(ast.walk(read_tree(place.file))) if to == str(place)]
    return Expression(place.file, place.function, stored[0], ast.unparse(stored[0])) if len(stored) == 1 else None


def _find_table(trace: Trace, place: Expression) -> Expression | None:
    """Find what made the unknown table of which an expression takes rows, as `table[positions].to(x.dtype)` does."""
    value = as_value(trace.values[place][0])
    converted = [each for each in trace.list_operands(place) if isinstance(trace.values[each][0], Tensor)]
    same = [each for each in converted if find_layout(as_value(trace.values[each][0]), value) is not None]
    lookup = trace.find_origin(same[0] if same else place)
    read = [each for each in trace.list_operands(lookup) if each.node is getattr(lookup.node, "value", None)]
    match = trace.match(read[0]) if read else None
    is_right = match is not None and not _is_in_another_order(match)
    is_lookup = isinstance(lookup.node, ast.Subscript) and read and not is_right
    origin = _find_maker(trace, trace.find_origin(read[0])) if is_lookup else place
    return origin if isinstance(origin.node, ast.Call | ast.BinOp) and trace.is_before(origin, lookup) else None


def _is_in_another_order(match: Match | None) -> bool:
    """Tell whether a value equals a checkpoint once its axes are moved."""
    return match is not None and list(match.axes[0] or ()) != sorted(match.axes[0] or ())


def _find_source(trace: Trace, place: Expression) -> Expression | None:
    """Find what made a tensor, in another line, that an expression only converts or that a helper returns."""
    origin = _find_maker(trace, place)
    is_elsewhere = (origin.file, origin.line) != (place.file, place.line)
    return origin if is_elsewhere and trace.is_before(origin, place) else None


def _find_maker(trace: Trace, place: Expression) -> Expression:
    """Find what made a tensor that a call returns, or that is only converted to another dtype."""
    operands = [each for each in trace.list_operands(place) if isinstance(trace.values[each][0], Tensor)]
    value = trace.values[place][0]
    same = [each for each in operands if (x := trace.values[each][0]).shape == value.shape and is_near(x, value)]
    origin = find_returned(trace, place) or (trace.find_origin(same[0]) if same else place)
    return place if origin is place or origin.is_read else _find_maker(trace, origin)


def _find_rewritten(trace: Trace, place: Expression) -> Expression | None:
    """Find the unknown tensor that an expression takes a part of, or writes another way: `== 0`, `~`, a slice."""
    value, operands = trace.values[place][-1], [x for x in trace.list_operands(place) if not trace.is_number(x)]
    if not isinstance(value, Tensor) or len(operands) != 1 or len(trace.values[place]) > 1:
        return None
    origin = trace.find_origin(operands[0])
    of = trace.values[origin][-1]
    if not isinstance(of, Tensor) or not is_mask(of) or trace.match(origin) or not trace.is_before(origin, place):
        return None
    is_part = share_numbers(*(trace.objects[each][-1] for each in (origin, place)))
    is_same = value.shape == of.shape and torch.equal(value == value.flatten()[0], of == of.flatten()[0])
    return origin if is_part or is_same else None


def _find_low(observed: Observed, words: str, trace: Trace, place: Expression) -> Expression | None:
    """Find what made the number, in another statement or a helper, that stands where −inf belongs."""
    maker = find_returned(trace, place) or place
    for each in trace.list_operands(maker):
        value, origin = as_value(trace.values[each][0]).tensor, find_returned(trace, each) or trace.find_origin(each)
        is_made = (origin.file, origin.line) != (place.file, place.line) and not origin.is_read
        if is_made and value.numel() == 1 and f"{format_number(value)} where" in words:
            return origin
    named = [(each, x) for each, x in _list_constants(observed, maker) if isinstance(x, float)]
    return next((each for each, x in named if f"{format_number(torch.tensor(x))} where" in words), None)


def _find_pattern(observed: Observed, _: Trace, place: Expression) -> Expression | None:
    """Find the pattern that a call reads, if it has a name at the top of a file."""
    return next((each for each, x in _list_constants(observed, place) if "->" in str(x)), None)


def _find_partial(observed: Observed, _: Trace, place: Expression) -> Expression | None:
    """Find what makes the partial with a name at the top of a file that an expression calls."""
    return next((each for each, x in _list_constants(observed, place) if isinstance(x, partial)), None)


def _list_constants(observed: Observed, place: Expression) -> Iterator[tuple[Expression, Any]]:
    """List what is assigned, once, to the names at the top of a file that an expression has, each with its value."""
    named = [each for each in ast.walk(place.node) if isinstance(each, ast.Name | ast.Attribute)]
    names = [getattr(each, "attr", getattr(each, "id", "")) for each in named]
    assigned = {file: [*list_assignments(read_tree(file).body)] for file in observed.files}
    for name, file in product([each for each in names if each not in place.parameters], observed.files):
        given = [value for to, value in assigned[file] if to == name]
        if len(given) == 1:
            yield Expression(file, MODULE, given[0], ast.unparse(given[0])), observed.find_namespace(file).get(name)


def _find_index(trace: Trace, place: Expression) -> Expression | None:
    """Find what made the unknown indices by which an expression takes rows of a right tensor."""
    operands = [x for x in trace.list_operands(place) if isinstance(trace.values[x][0], Tensor)]
    is_indexing = isinstance(place.node, ast.Subscript) or place.called.rpartition(".")[2] in INDEXING
    if len(operands) != 2 or not is_indexing or not trace.match(operands[0]):
        return None
    index, value = operands[1], trace.values[operands[1]][0]
    origin = trace.find_origin(index)
    is_made = not origin.is_read and origin.line != place.line and not trace.match(index)
    return origin if is_made and not value.is_floating_point() and value.dtype != torch.bool else None


def _find_slice(observed: Observed, trace: Trace, place: Expression) -> Expression | None:
    """Find the slice with a name by which an expression takes a part of a right tensor."""
    operands = [x for x in trace.list_operands(place) if isinstance(trace.values[x][0], Tensor)]
    if not isinstance(place.node, ast.Subscript) or len(operands) != 1 or not trace.match(operands[0]):
        return None
    function = observed.definitions.get((place.file, place.function), ast.Pass())
    names = {each.id for each in ast.walk(place.node.slice) if isinstance(each, ast.Name)}
    assigned = [value for to, value in list_assignments(ast.walk(function)) if to in names]
    made = [value for value in assigned if name_called(value) == "slice"]
    return Expression(place.file, place.function, made[0], ast.unparse(made[0])) if len(made) == 1 else None


def _find_reshaped(is_wrong: Callable[[Match | None], bool], trace: Trace, place: Expression) -> Expression | None:
    """Find the wrong tensor of which an expression only changes the shape."""
    operands = [x for x in trace.list_operands(place) if isinstance(trace.values[x][0], Tensor)]
    is_reshaping = isinstance(place.node, ast.Subscript) or place.called.rpartition(".")[2] in RESHAPING
    if not is_reshaping or len(operands) != 1 or not is_wrong(trace.match(operands[0])):
        return None
    pairs = zip(trace.values[operands[0]], trace.values[place], strict=False)
    is_same = all(of.numel() == value.numel() and torch.equal(of.flatten(), value.flatten()) for of, value in pairs)
    origin = trace.find_origin(operands[0])
    return origin if is_same and not origin.is_read else None
