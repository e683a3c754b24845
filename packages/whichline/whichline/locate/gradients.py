"""Missing or wrong gradients of a right output: the expressions where the graph is cut, or passes back a wrong one."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from whichline.engine.case import GRADIENT
from whichline.engine.compare import listed
from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.engine.syntax import find_definition
from whichline.locate.breach import describe_breach, is_computed, name_places, prove, put_operand, put_step
from whichline.locate.causes import find_one_call
from whichline.locate.checkpoints import list_reached
from whichline.locate.mutants import Mutable
from whichline.locate.options import list_options
from whichline.locate.probe import Expression
from whichline.locate.repair import Repair, find_line, find_repair
from whichline.locate.run import Call, Change, Experiment, Patch, Runner
from whichline.locate.source_location import read_tree
from whichline.locate.trace import Trace

MOST_STEPS = 8  # checkpoints that are tried in place of an unknown value
MOST_RUNS = 200

CUT = "Which of these keeps the graph: .detach(), .data, .item(), torch.tensor(x), torch.no_grad()?"
COPIED = "What does `functional_call` do with a tensor that copying its numbers into a parameter does not?"
BY_HAND = "Which derivative does your backward pass compute, and of what?"
HIDDEN = "What is the gradient of a number that is NaN, and is replaced later?"
BENT = "Which part of the formula does autograd treat as a constant here?"


def find_gradients(experiment: Experiment) -> Finding | None:
    """Find where the graph is cut, or where a wrong gradient is passed back."""
    plain = experiment.runner.look(experiment.failing[0])
    missing = sorted(set(_list_leaves(plain).values()) - _reach(plain.came, _list_leaves(plain)))
    if experiment.patch and not missing:  # a checkpoint has a graph of its own
        return None
    trace = experiment.run(experiment.failing[0])
    cut = _list_cut(trace, _list_leaves(trace))
    if missing:  # elsewhere a cut may be right, as at a maximum
        cut = {place: names for place, names in cut.items() if set(names) & set(missing)}
    off = _list_off(experiment, trace)
    joins = {place: _join(experiment.runner, trace, place) for place in cut if place not in off}
    joined = {place: {place: change} for place, change in joins.items() if change}
    for changes in (joined, {place: _keep_graph(trace, place) for place in off}):
        places, passing = prove(experiment, changes)
        if passing:
            lost = cut.get(places[0]) or sorted({name for names in cut.values() for name in names})
            is_off, join = places[0] in off, joins.get(places[0])
            if join and len(places) == 1:
                places = [_find_shown(experiment, trace, places[0], join, passing)]
            return _describe_cut(experiment, trace, places, lost, passing, is_off)
    if not missing:
        return _find_bent(experiment, trace)
    real = [place for place in cut if not trace.is_initial_value(place)]
    if len(real) == 1:
        return _describe_cut(experiment, trace, real, cut[real[0]], ())
    copies = _list_copies(trace, missing)
    return _describe_copied(experiment, trace, copies) if copies else None


def _list_leaves(trace: Trace) -> dict[int, str]:
    """The names of the arguments whose gradients are asked for, by id."""
    return {id(x): name for name, x in trace.given.items() if isinstance(x, Tensor) and x.requires_grad}


def _reach(value: Any, given: Mapping[int, str]) -> set[str]:
    """The arguments that the gradient of a value reaches."""
    return {given[leaf] for leaf in map(id, list_reached(value)) if leaf in given}


def _list_cut(trace: Trace, given: Mapping[int, str]) -> dict[Expression, list[str]]:
    """The expressions at which gradients are cut off from arguments that reach their operands, and these arguments."""
    found = {}
    for place in trace.places:
        value = trace.objects[place][-1]
        if not is_computed(place) or not (isinstance(value, float) or _has_fractions(value)):
            continue
        into = {name for each in trace.list_operands(place) for name in _reach(trace.objects[each][-1], given)}
        if lost := into - _reach(value, given):
            found[place] = sorted(lost)
    return found


def _list_off(experiment: Experiment, trace: Trace) -> list[Expression]:
    """List the expressions that are computed under `no_grad`, without the operands of others."""
    off: set[Expression] = set()
    experiment.run_anew(trace.test, lambda call, place: None if torch.is_grad_enabled() else off.add(place))
    inner = {each for place in off if place in trace.values for each in trace.list_operands(place)}
    outer = [place for place in trace.places if place in off - inner and is_computed(place)]
    return [place for place in outer if _has_fractions(trace.objects[place][-1])]


def _keep_graph(trace: Trace, place: Expression) -> Patch:
    """Turn autograd on for an expression under `no_grad`, and off after it."""
    inside = {id(node) for node in ast.walk(place.node)} - {id(place.node)}

    def turn(is_on: bool, call: Call, time: int, value: Any) -> Any:
        torch.set_grad_enabled(is_on)
        return value

    within = [each for each in trace.places if id(each.node) in inside]
    return {each: partial(turn, True) for each in within} | {place: partial(turn, False)}


def _has_fractions(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _join(runner: Runner, trace: Trace, place: Expression) -> Change | None:
    """Replace a detached value by the operand that it equals, or by its checkpoint, with the graph."""
    value = trace.objects[place][-1]
    if place.in_place or not isinstance(value, Tensor) or trace.is_initial_value(place):
        return None
    for operand in trace.list_operands(place):
        x = trace.objects[operand][-1]
        if isinstance(x, Tensor) and x.requires_grad and x.dtype == value.dtype and torch.equal(x, value):
            return put_operand(runner, operand)
    return put_step(trace, place)


def _find_shown(
    experiment: Experiment, trace: Trace, place: Expression, join: Change, passing: Sequence[Test]
) -> Expression:
    """Find the one call in which a helper must keep the graph, if it may cut it off in others; else show the place."""

    def join_at(wanted: int, call: Call, time: int, value: Any) -> Any:
        return join(call, time, value) if time == wanted else None

    times = range(len(trace.objects[place]))
    changes = [{place: partial(join_at, time)} for time in times]
    enough = [time for time in times if all(experiment.run(test, changes[time]).passed for test in passing)]
    call = find_one_call(trace, place, enough[0]) if len(enough) == 1 < len(times) else None
    return call or place


def _describe_cut(
    experiment: Experiment,
    trace: Trace,
    places: Sequence[Expression],
    lost: Sequence[str],
    passing: Sequence[Test],
    is_off: bool = False,
) -> Finding:
    said = f"{'Autograd is off here: no' if is_off else 'No'} gradient goes back from here to {_name(lost)}."
    right = f"With the graph kept {name_places(places)}"
    return describe_breach(experiment, trace, places, "gradient-cut", [said], CUT, right, passing)


def _name(arguments: Sequence[str]) -> str:
    return listed(f"`{name}`" for name in arguments)


def _list_copies(trace: Trace, missing: Sequence[str]) -> dict[Expression, str]:
    """Find the last reads of arguments whose numbers then continue in tensors without their graph."""
    found = {}
    tensors = [(place, x) for place in trace.places for x in trace.objects[place] if isinstance(x, Tensor)]
    for name in missing:
        x = trace.given[name]
        reads = [place for place in trace.places if any(each is x for each in trace.objects[place])]
        copies = [place for place, each in tensors if each is not x and _holds(each, x)]
        before = [place for place in reads if not copies or trace.is_before(place, copies[0])]
        if before and (statement := _find_statement(before[-1])):
            found[replace(before[-1], node=statement, text=ast.unparse(statement))] = name
    return found


def _holds(copy: Tensor, x: Tensor) -> bool:
    """Tell whether a tensor has the numbers of another one, but not its graph."""
    return copy.is_leaf and copy.shape == x.shape and copy.dtype == x.dtype and torch.equal(copy, x)


def _find_statement(place: Expression) -> ast.stmt | None:
    """Find the innermost statement around an expression."""
    start, end = (place.node.lineno, place.node.col_offset), (place.node.end_lineno, place.node.end_col_offset)
    statements = [node for node in ast.walk(read_tree(place.file)) if isinstance(node, ast.stmt)]
    before = [node for node in statements if (node.lineno, node.col_offset) <= start]
    around = [node for node in before if (node.end_lineno or 0, node.end_col_offset or 0) >= end]
    return max(around, key=lambda node: (node.lineno, node.col_offset), default=None)


def _describe_copied(experiment: Experiment, trace: Trace, copies: Mapping[Expression, str]) -> Finding:
    names, places = list(copies.values()), list(copies)
    said = f"{_name(names)} {'go' if len(names) > 1 else 'goes'} in here, and no gradient comes back to "
    said += f"{'them' if len(names) > 1 else 'it'} from the answer."
    is_copy = any(word in each.text for each in places for word in ("load_state_dict", ".data", "copy_", "Parameter"))
    means = "The numbers are copied into a parameter, and the graph ends there." if is_copy else ""
    parameter = _put_arguments(trace, names)
    passing = experiment.list_passing(parameter) if parameter else []
    id, question = ("gradient-copied", COPIED) if is_copy else ("gradient-cut", CUT)
    right = "With the argument itself in place of the copy"
    return describe_breach(experiment, trace, places, id, [said, means], question, right, passing)


def _put_arguments(trace: Trace, names: Sequence[str]) -> Patch:
    """Replace the copies by the arguments themselves, wherever an attribute reads them."""
    changes: dict[Expression, Change] = {}

    def put(call: Call, time: int, value: Any) -> Any:
        given = [call.given[name] for name in names]
        return next((x for x in given if isinstance(value, Tensor) and value is not x and _holds(value, x)), None)

    for place in trace.places:
        read = trace.objects[place][-1]
        if isinstance(place.node, ast.Attribute) and not place.in_place and isinstance(read, Tensor):
            changes |= {place: put} if any(_holds(read, trace.given[name]) for name in names) else {}
    return changes


def _find_bent(experiment: Experiment, trace: Trace) -> Finding | None:
    """Find the first expression whose replacement by a checkpoint, with its graph, makes the gradients right.

    If a gradient is NaN, expressions that are NaN themselves are tried first; then those with right numbers.
    """
    gradient = getattr(trace.error, "answer", None)
    is_nan = isinstance(gradient, Tensor) and bool(gradient.isnan().any())
    made = [place for place in trace.places if is_computed(place) and not place.in_place]
    places = [place for place in made if isinstance(trace.objects[place][0], Tensor)]
    nans = [place for place in places if _is_nan(trace, place)]
    born = [place for place in nans if not any(_is_nan(trace, each) for each in trace.list_operands(place))]
    right = [place for place in places if trace.match(place)]
    most = experiment.runner.runs + MOST_RUNS
    for place in dict.fromkeys((*(born if is_nan else ()), *right, *places)):
        for change, name in _list_steps(trace, place):
            if experiment.runner.is_spent or experiment.runner.runs > most:
                return None
            is_right = experiment.run(trace.test, {place: change}).passed
            if is_right and (passing := experiment.list_passing({place: change})):
                said, id, question = _describe(trace, place)
                shown, right = _find_returned(trace, place), f"With {name} here"
                if shown is not place:
                    right = f"With {name} of `{place}`"
                    if repair := _find_repair(experiment.runner, passing, shown):
                        shown, right = repair.place, repair.words
                return describe_breach(experiment, trace, [shown], id, [said], question, right, passing)
    return None


def _find_backward(x: Any) -> CodeType | None:
    """The backward pass of the student's that the gradient of a tensor goes through first."""
    function = getattr(type(getattr(x, "grad_fn", None)), "_forward_cls", None)
    return getattr(getattr(function, "backward", None), "__code__", None)


def list_backward_lines(trace: Trace) -> set[tuple[str, int]]:
    """The lines of the backward passes that a test runs, by the file."""
    codes = {code for objects in trace.objects.values() if (code := _find_backward(objects[-1]))}
    return {(code.co_filename, line) for code in codes for _, _, line in code.co_lines() if line}


def _find_returned(trace: Trace, place: Expression) -> Expression:
    """What the backward pass of a function of the student's returns for the argument whose gradient is wrong."""
    code = _find_backward(trace.objects[place][0])
    definition = find_definition(code) if code else None
    if code is None or definition is None or not isinstance(place.node, ast.Call):
        return place
    returned = [each.value for each in ast.walk(definition) if isinstance(each, ast.Return) and each.value]
    if len(returned) != 1:
        return place
    wrong = getattr(trace.error, "what", "").removeprefix(GRADIENT)
    leaves, ends = _list_leaves(trace), [(at.node, trace.objects[at][-1]) for at in trace.places]
    reach = [any(node is each and wrong in _reach(x, leaves) for node, x in ends) for each in place.node.args]
    elements = returned[0].elts if isinstance(returned[0], ast.Tuple) else returned
    is_one = reach.count(True) == 1 and reach.index(True) < len(elements)
    node = elements[reach.index(True)] if is_one else returned[0]
    return Expression(code.co_filename, code.co_qualname, node, ast.unparse(node))


def _find_repair(runner: Runner, failing: Sequence[Test], returned: Expression) -> Repair | None:
    """Find a change of a backward pass, or of what runs in it alone, that makes its gradients right."""
    trace = runner.run(failing[0], {}, to_end=True)
    forward = {(place.file, place.function) for place in runner.look(failing[0]).order}
    own = [place for place in trace.order if (place.file, place.function) not in forward]
    if not own:
        return None
    find = partial(find_repair, runner, failing, [], [find_line(returned)], replace(trace, order=own))
    lines = _list_setting(returned)
    return find(only=lambda mutant: mutant.line in lines) or find()


def _list_setting(name: Expression) -> set[int]:
    """List the lines of a function that set a name, or some of its elements."""
    found: set[int] = set()
    for node in ast.walk(Mutable(read_tree(name.file), name.function).function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = [each.value if isinstance(each, ast.Subscript) else each for each in targets]
            if any(isinstance(each, ast.Name) and each.id == name.text for each in named):
                found |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    return found


def _is_nan(trace: Trace, place: Expression) -> bool:
    value = trace.values[place][0]
    return isinstance(value, Tensor) and bool(value.isnan().any())


def _list_steps(trace: Trace, place: Expression) -> Iterator[tuple[Change, str]]:
    if match := trace.match(place):
        if change := put_step(trace, place):
            yield change, f"the gradient of {match.names[0]}"
        return
    for option in list_options(trace, place)[:MOST_STEPS]:
        yield option, option.names[0]


def _describe(trace: Trace, place: Expression) -> tuple[str, str, str]:
    """Say how the gradient of an expression is wrong, what that is called, and what to ask."""
    value = trace.objects[place][0]
    if wrong := int(value.isnan().sum()):
        count = f"{wrong} of the {value.numel()} numbers here are NaN"
        return f"{count}: the answer hides it, but the gradient does not.", "gradient-nan", HIDDEN
    function = getattr(type(value.grad_fn), "_forward_cls", None)
    if function is not None:
        said = f"`{function.__name__}.forward` gives the right numbers. The gradient from its `backward` is wrong."
        return said, "gradient-by-hand", BY_HAND
    if trace.match(place):
        said = "The numbers here are right. The gradient that is passed back through them is not."
        return said, "gradient-bent", BENT
    return "The answer is right. The gradient that is passed back from here on is not.", "gradient-bent", BENT
