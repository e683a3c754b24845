"""Evidence of a mistake at a place, where checkpoints are few and the answer is one of them."""

import ast
from collections.abc import Sequence

from torch import Tensor

from whichline.engine.suite import Test
from whichline.locate.candidates import list_returned_early
from whichline.locate.difference import compare
from whichline.locate.found import Found
from whichline.locate.options import Option
from whichline.locate.probe import Expression
from whichline.locate.run import Runner
from whichline.locate.trace import Trace
from whichline.locate.values import as_value, find_layout
from whichline.plain.functions import Paired
from whichline.plain.parts import ANSWER

FEW = 4  # numbers


def find_shape(runner: Runner, tests: Sequence[Test]) -> list[Found]:
    """Find right numbers in a wrong shape, such as a mean that has lost its axis."""
    trace = runner.look(tests[0])
    for place in reversed(trace.places):
        value = trace.value(place)[0]
        if place.is_read or not isinstance(value, Tensor):
            continue
        for name, known in trace.known.list_alike(as_value(value)):
            if name in trace.steps and known.tensor.shape != value.shape and find_layout(as_value(value), known):
                patch = {place: Option((name,))}
                if all(runner.passes(test, patch) for test in tests):
                    return [Found(patch, trace, compare(trace, patch), tuple(test.name for test in tests))]
    return []


def is_of_few(found: Found) -> bool:
    """Tell whether an expression has so few numbers that two replacements prove nothing."""
    return all(getattr(x, "numel", lambda: 1)() <= FEW for x in found.trace.values[found.place] if x is not None)


def is_answer(found: Found) -> bool:
    """Tell whether a replacement is only the right output, without evidence that the mistake is there."""
    place, trace = found.place, found.trace
    wanted = trace.known.values.get(found.option.names[0])
    answers = (step.value for name, step in trace.steps.items() if name.startswith(f"the {ANSWER}"))
    if not wanted or not any(find_layout(wanted, each) is not None for each in answers):
        return False
    operands = trace.list_operands(place)
    # an earlier event may be wrong
    is_added_to = isinstance(place.node, ast.AugAssign) and len(trace.values[place]) > 1
    is_first = trace.is_first_divergence(place) or place in list_returned_early(trace)
    return is_added_to or not operands or not all(_is_known(trace, each) for each in operands) or not is_first


def is_doubtful(found: Found) -> bool:
    """Tell whether another place may be wrong: it only reads, or reads what the reference lacks or a call left."""
    place, trace = found.place, found.trace
    operands = trace.list_operands(place)
    inside = {id(node) for node in ast.walk(place.node) if node is not place.node}
    names = (each for each in trace.places if isinstance(each.node, ast.Name | ast.Attribute))
    read = [each for each in names if id(each.node) in inside]
    made = (each for each in (*operands, *read) if trace.is_number(each) or not trace.is_constant(each))
    is_read = not operands and not isinstance(place.node, ast.Call | ast.BinOp | ast.Constant)
    # A name that the code compares may count as right only because of `x is None`.
    is_known = trace.match if isinstance(place.node, ast.Compare) else trace.is_right
    is_unknown = is_read or not all(is_known(each) or isinstance(each.node, ast.Constant) for each in made)
    return is_unknown or Paired.has_calls_before(trace.arguments)


def has_weights(found: Found) -> bool:
    """Tell whether an expression calls a layer, or a function that is wrong inside: weights may be wrong there."""
    func = getattr(found.place.node, "func", None)
    is_layer = isinstance(func, ast.Attribute) and ast.unparse(func.value) == "self"
    return is_layer or found.trace.is_called_rightly(found.place)


def list_inside(found: Found) -> list[Expression]:
    """List where to begin inside a proved call: first what differs from the reference though its operands do not."""
    inside = [each for each in found.trace.places if each in found.trace.inside.get(found.place, ())]
    functions = {(each.file, each.function): each for each in reversed(inside)}
    return [*filter(found.trace.is_first_divergence, inside), *functions.values()]


def is_little(trace: Trace, place: Expression) -> bool:
    """Tell whether there is little reason to suspect an expression: an element, a constant, or a single number."""
    values = trace.values[place]
    is_count = len(values) == 1 or all(type(x) is int for x in values)
    return (trace.is_number(place) and is_count) or isinstance(place.node, ast.Subscript) or trace.is_constructor(place)


def _is_known(trace: Trace, place: Expression) -> bool:
    """Tell whether an expression is right, in the right shape, or counts something, or is a constant."""
    values, match = trace.values[place], trace.match(place)
    if not trace.is_number(place) or match:
        known = trace.known.values.get(match.names[0]) if match and not match.together else None
        is_alike = known is None or sorted(known.tensor.shape) == sorted(getattr(values[0], "shape", ()))
        return (trace.is_right(place) and is_alike) or trace.is_initial_value(place) or trace.is_constructor(place)
    if isinstance(place.node, ast.Attribute) and Paired.has_calls_before(trace.arguments):
        return False  # an earlier call may have set it
    is_constant = not trace.list_operands(place) and len(set(values)) == 1 and trace.find_origin(place) is place
    return is_constant or all(type(x) is int for x in values)
