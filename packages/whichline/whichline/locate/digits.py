"""Outputs with another dtype than the inputs, or with too few digits: the expressions that cause it."""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from whichline.engine.case import LAST_DIGITS, dtype_of
from whichline.engine.compare import WrongAnswer, is_float, listed, name_dtype
from whichline.engine.finding import MODULE, Finding
from whichline.engine.names import resolve
from whichline.locate.breach import describe_breach, is_computed, name_places, prove, put_operand, put_step
from whichline.locate.causes import find_one_call
from whichline.locate.changes import Slot, get_node
from whichline.locate.mutants import Mutable
from whichline.locate.mutated import Function
from whichline.locate.observed import Namespace, Observed
from whichline.locate.probe import Expression
from whichline.locate.repair import list_ran
from whichline.locate.run import Call, Change, Experiment, Patch, Runner
from whichline.locate.source_location import list_assignments, read_tree
from whichline.locate.trace import Trace
from whichline.locate.values import HALF, as_value, find_layout

DIGITS = {torch.float64: 16, torch.float32: 7, torch.float16: 3, torch.bfloat16: 2}
LEFT_OUT = "dtype-left-out"
HALF_INSIDE = "half-inside"  # in the id of a finding
WORSE = 8.0  # an expression loses digits if its error is so many times that of its operands
SHOWN = 1e-3  # a number that is further off is wrong, and not short of digits
AGAIN = 3  # searches for narrow values, each with the ones found before widened
LOOKED = 3  # tests in which the expressions are searched
AMONG, NOT_AMONG = ast.In | ast.Eq | ast.Is, ast.NotIn | ast.NotEq | ast.IsNot

CAST_BACK = "What should the dtype of the answer be, and which expression could give it that?"
DEFAULT = "Where does this get its dtype from: the input, a default, or a cast?"
ONCE = "How often does your code round to {}, and how often must it?"
CANCELS = "What is added here, or taken away, that the formula does not have?"


def find_dtypes(experiment: Experiment) -> Iterator[Finding]:
    """Find where an output gets another dtype than the inputs, and where digits are lost."""
    failing = experiment.failing
    traces = {test.name: experiment.run(test) for test in failing}
    other = [test for test in failing if _is_other(traces[test.name])]
    if experiment.patch:  # replacements have their own digits
        other = [test for test in other if _is_other(experiment.runner.look(test))]
        failing = [test for test in failing if test in other or not _is_other(traces[test.name])]
    is_wider = any(_is_wider(traces[test.name]) for test in other)
    if is_wider and (found := _find_wide(experiment.only(other), traces)):
        yield found
        other = [test for test in other if _is_wider(traces[test.name]) or (test.name in found.tests and found.proof)]
        failing = [test for test in failing if test not in other]
    half = [test for test in failing if dtype_of(traces[test.name].given) in HALF]
    full = [test for test in failing if test not in half]
    for tell in (_find_narrow, _find_lost):
        if full and (found := tell(experiment.only(full), traces)):
            yield found
            break
    if half and (found := _find_half(experiment.only(half), traces)):
        yield found


def _is_other(trace: Trace) -> bool:
    """Tell whether an output of floating-point numbers has another dtype than the inputs."""
    answer, cases = _get_answer(trace), trace.test.cases()
    if answer is None or answer.dtype == dtype_of(trace.given):
        return False
    right = cases[0].expected.get(getattr(trace.error, "what", "")) if cases else None
    return right is None or right.is_floating_point()


def _get_answer(trace: Trace) -> Tensor | None:
    """Return the wrong tensor, which may be one of several outputs."""
    answer = getattr(trace.error, "answer", None)
    return answer if isinstance(answer, Tensor) else None


def _is_wider(trace: Trace) -> bool:
    answer = _get_answer(trace)
    return answer is not None and _is_other(trace) and answer.dtype.itemsize > dtype_of(trace.given).itemsize


def _find_wide(experiment: Experiment, traces: Mapping[str, Trace]) -> Finding | None:
    """Find where an output gets a wider dtype, as float32 for inputs in float16."""
    trace = next(traces[test.name] for test in experiment.failing if _is_wider(traces[test.name]))
    answer, dtype = _get_answer(trace), dtype_of(trace.given)
    assert answer is not None
    came = answer.dtype
    makers = [each for each in trace.places if any(x is answer for x in trace.objects[each])]
    makers = [each for each in makers if (each.file, each.function) == (makers[0].file, makers[0].function)]
    if not makers:
        return None
    place = ([each for each in makers if is_computed(each)] or makers)[-1]
    dtypes = {dtype_of(traces[test.name].given) for test in experiment.failing}
    inputs = sorted(dtypes, key=lambda each: (each.itemsize, str(each)))
    names = listed(map(name_dtype, inputs)).replace(" and ", " or ")
    for meeting, operands in _list_meetings(trace, dtype):
        if passing := experiment.list_passing(dict.fromkeys(operands, _cast)):
            other = " ".join(operands[0].text.split())
            said = f"This is {name_dtype(came)} where the inputs are {names}, since `{other}` is {name_dtype(came)}."
            right = f"With `{other}` in the dtype of the inputs"
            return describe_breach(experiment, trace, [meeting], "dtype", [said], DEFAULT, right, passing)
    passing = experiment.list_passing({place: _cast})
    is_cast = any(_is_same_in(trace, each, place, dtype) for each in trace.list_operands(place))
    said = f"{'This makes the' if is_cast else 'The'} answer {'' if is_cast else 'is '}{name_dtype(came)} "
    said += f"where the inputs are {names}{'' if is_cast else ': nothing casts it back'}."
    right = "With the dtype of the inputs here"
    return describe_breach(experiment, trace, [place], "dtype", [said], CAST_BACK, right, passing)


def _is_same_in(trace: Trace, operand: Expression, place: Expression, dtype: torch.dtype) -> bool:
    """Tell whether an expression only casts an operand of a dtype."""
    x, value = trace.objects[operand][-1], trace.objects[place][-1]
    return isinstance(x, Tensor) and x.dtype == dtype and torch.equal(x.to(value.dtype), value)


def _list_meetings(trace: Trace, dtype: torch.dtype) -> Iterator[tuple[Expression, list[Expression]]]:
    """List the expressions that combine an operand of the inputs' dtype with a wider one."""
    for place in trace.places:
        operands = [each for each in trace.list_operands(place) if is_float(trace.objects[each][0])]
        dtypes = {trace.objects[each][0].dtype for each in operands}
        wide = [each for each in operands if trace.objects[each][0].dtype.itemsize > dtype.itemsize]
        if dtype in dtypes and wide and is_computed(place):
            yield place, wide


def _cast(call: Call, time: int, value: Any) -> Any:
    return value.to(dtype_of(call.given)) if is_float(value) else None


def _find_narrow(experiment: Experiment, traces: Mapping[str, Trace]) -> Finding | None:
    changes = _widen_all(experiment, traces)
    places, passing = prove(experiment, {place: {place: change} for place, change in changes.items()})
    if not passing:
        return None
    trace = next(traces[test.name] for test in passing if places[0] in traces[test.name].values)
    dtype, narrow = dtype_of(trace.given), trace.objects[places[0]][0].dtype
    said = f"This is {name_dtype(narrow)} where the inputs are {name_dtype(dtype)}{_describe_effect(trace)}."
    right = f"With {name_dtype(dtype)} {name_places(places)}"
    given = [each for place in places if (each := _find_returned_dtype(experiment.runner.observed, place))]
    places = given[:1] if len(given) == len(places) else places
    return describe_breach(experiment, trace, places, f"{name_dtype(narrow)}-inside", [said], DEFAULT, right, passing)


def _find_returned_dtype(observed: Observed, place: Expression) -> Expression | None:
    """Find the dtype that a helper of the student's returns whatever it gets, in what a cast is given."""
    names = observed.find_namespace(place.file)
    for each in ast.walk(place.node):
        helper = resolve(each.func, names) if isinstance(each, ast.Call) else None
        if not isinstance(helper, FunctionType):
            continue
        at = helper.__code__.co_filename, helper.__code__.co_qualname
        own = ast.walk(observed.definitions.get(at, ast.Pass()))
        returned = [x.value for x in own if isinstance(x, ast.Return) and x.value]
        if len(returned) == 1 and isinstance(resolve(returned[0], helper.__globals__), torch.dtype):
            return Expression(*at, returned[0], ast.unparse(returned[0]))
    return None


def _widen_all(experiment: Experiment, traces: Mapping[str, Trace]) -> dict[Expression, Change]:
    """Widen the narrow values, then those that are still narrow."""
    changes: dict[Expression, Change] = {}
    for test in experiment.failing[:LOOKED]:
        trace = traces[test.name]
        for _ in range(AGAIN):
            dtype = dtype_of(trace.given)
            wide = torch.float32 if dtype in HALF else dtype
            narrow = [place for place in _list_narrow(trace, wide) if place not in changes]
            changes |= {place: _widen(experiment.runner, trace, place, wide) for place in narrow}
            trace = experiment.run(test, changes) if narrow else trace
            if not narrow or not trace.places:
                break
    return changes


def _find_half(experiment: Experiment, traces: Mapping[str, Trace]) -> Finding | None:
    """Find values that are rounded to half precision too early."""
    read, last = _read_wide(experiment, traces), _round_last(experiment, traces)
    inner = {place: change for place, change in _widen_all(experiment, traces).items() if place not in last}
    places, passing = prove(experiment, {place: {place: change} for place, change in inner.items()}, last)
    right = f"With float32 {name_places(places)}, and one rounding at the end"
    if not passing and inner:
        places, passing = list(inner), experiment.list_passing({**inner, **read, **last})
        right = "With all of it in float32, and one rounding at the end"
    if not passing:
        return None
    trace = next(traces[test.name] for test in passing if places[0] in traces[test.name].values)
    narrow = trace.objects[places[0]][0].dtype
    said = f"This is rounded to {name_dtype(narrow)}, {DIGITS[narrow]} digits, and the answer is computed from it."
    question = ONCE.format(name_dtype(narrow))
    if test := _find_dtype_test(experiment, trace, narrow):
        said = f"{name_dtype(narrow)} is none of the dtypes here, so it is not computed in float32."
        right = f"With {name_dtype(narrow)} among them"
        return describe_breach(experiment, trace, [test], LEFT_OUT, [said], question, right, experiment.failing)
    if table := _find_dtype_table(experiment, narrow):
        said = f"This leaves {name_dtype(narrow)} as it is, so it is not computed in float32."
        right = f"With float32 for {name_dtype(narrow)}"
        return describe_breach(experiment, trace, [table], LEFT_OUT, [said], question, right, experiment.failing)
    if len(trace.objects[places[0]]) > 1:  # the function rounds for all its callers
        places = list(dict.fromkeys([find_one_call(trace, places[0], 0) or places[0], *places[1:]]))
    return describe_breach(experiment, trace, places, HALF_INSIDE, [said], question, right, passing)


def _find_dtype_test(experiment: Experiment, trace: Trace, dtype: torch.dtype) -> Expression | None:
    """Find the dtypes among which this one is missing; with it, all tests pass."""
    for file, name in dict.fromkeys((file, name) for file, name, _ in list_ran(experiment.runner, trace.test)):
        tree = read_tree(file)
        mutable = Mutable(tree, name)
        for mutant in mutable.list_mutants(_MoreDtypes(dtype, experiment.runner.observed.find_namespace(file))):
            if Function(experiment.runner, file, mutable).passes(mutant, experiment.failing):
                among = ast.unparse(mutant.node.comparators[0])  # type: ignore[attr-defined]  (a comparison)
                named = dict(list_assignments(tree.body)).get(among)
                function = MODULE if named else name
                return Expression(file, function, named or mutant.node, ast.unparse(named or mutant.node))  # type: ignore[arg-type]  (an expression)
    return None


def _find_dtype_table(experiment: Experiment, dtype: torch.dtype) -> Expression | None:
    """Find what a table of dtypes has for this one, or a table that lacks it; with float32, all tests pass."""
    observed = experiment.runner.observed
    with observed.keeping():
        assigned = ((file, *each) for file in observed.files for each in list_assignments(read_tree(file).body))
        for file, name, node in assigned:
            table = observed.find_namespace(file).get(name)
            if not isinstance(node, ast.Dict) or not isinstance(table, dict) or None in node.keys:
                continue
            if table.get(dtype, dtype) is dtype and any(x is torch.float32 for x in table.values()):
                before = {**table}
                table[dtype] = torch.float32
                passes = all(map(experiment.runner.passes_as_is, experiment.failing))
                table.clear()
                table.update(before)
                if passes:
                    its = dict(zip(before, node.values, strict=False)).get(dtype, node)
                    return Expression(file, MODULE, its, ast.unparse(its))
    return None


class _MoreDtypes:
    """Adds a dtype to those with which the dtype of a tensor is compared; `names` are the global ones."""

    def __init__(self, dtype: torch.dtype, names: Namespace) -> None:
        self._names, self._new = names, ast.parse(f"__import__('torch').{name_dtype(dtype)}", mode="eval").body

    def list_changes(self, slot: Slot) -> Iterator[tuple[ast.AST, ast.AST, str]]:
        match node := get_node(slot):
            case ast.Compare(left, [op], [known]) if isinstance(op, AMONG | NOT_AMONG):
                words = f"{ast.unparse(left)} {ast.unparse(known)} {resolve(known, self._names)}"
                if re.search("dtype|float16", words):
                    known = ast.Starred(known, ast.Load()) if isinstance(op, ast.In | ast.NotIn) else known
                    both = ast.Tuple([known, self._new], ast.Load())
                    is_in = ast.In() if isinstance(op, AMONG) else ast.NotIn()
                    yield node, ast.Compare(left, [is_in], [both]), "another dtype here"


def _describe_effect(trace: Trace) -> str:
    dtype = dtype_of(trace.given)
    if isinstance(trace.came, Tensor) and trace.came.dtype != dtype:
        return f", and so the answer is {name_dtype(trace.came.dtype)}"
    off = _measure(trace)
    if not 0 < off < SHOWN:
        return ""
    return f": the answer is right to {-math.log10(off):.0f} digits, and {name_dtype(dtype)} has {DIGITS[dtype]}"


def _measure(trace: Trace) -> float:
    """Measure the error of an output, as a share of its largest number."""
    right = trace.test.cases()[0].expected["answer"]
    came = trace.came if isinstance(trace.error, WrongAnswer) else None
    if not isinstance(came, Tensor) or came.shape != right.shape:
        return 0.0
    return float((came.detach().double() - right).abs().max() / right.abs().max())


def _list_narrow(trace: Trace, wide: torch.dtype) -> list[Expression]:
    """List the expressions that make a value narrow, from operands that are not; narrow inputs do not count."""
    given = [as_value(x) for x in trace.given.values() if _is_narrow(x, wide)]
    narrow: set[int] = set()
    found = []
    for place in trace.places:
        value = trace.objects[place][0]
        if place.in_place or not _is_narrow(value, wide) or not is_computed(place):
            continue
        if id(value) in narrow or any(find_layout(as_value(value), x, exactly=True) is not None for x in given):
            continue
        if not any(id(trace.objects[each][0]) in narrow for each in trace.list_operands(place)):
            found.append(place)
        narrow.add(id(value))
    return found


def _is_narrow(value: Any, wide: torch.dtype) -> bool:
    if not isinstance(value, Tensor):
        return False
    size = value.dtype.itemsize // (2 if value.is_complex() else 1)
    return (value.is_floating_point() or value.is_complex()) and size < wide.itemsize


def _widen(runner: Runner, trace: Trace, place: Expression, wide: torch.dtype) -> Change:
    """Replace a narrow value by the operand of the cast, by its checkpoint, or by itself in a wider dtype."""
    value = trace.objects[place][0]
    tensors = [(each, x) for each in trace.list_operands(place) if isinstance(x := trace.objects[each][0], Tensor)]
    broad = [(each, x) for each, x in tensors if x.shape == value.shape and not _is_narrow(x, wide)]
    in_order = tuple(range(value.ndim))
    operands = [each for each, x in broad if find_layout(as_value(value), as_value(x)) == in_order]
    as_operand = put_operand(runner, operands[0]) if operands and value.numel() > 1 else None
    as_step = put_step(trace, place, lambda x: _cast_up(x, wide))

    def change(call: Call, time: int, value: Any) -> Any:
        for put in (as_operand, as_step):
            new = put(call, time, value) if put else None
            if isinstance(new, Tensor) and new.shape == value.shape:
                return _cast_up(new, wide)
        return _cast_up(value, wide) if isinstance(value, Tensor) else None

    return change


def _cast_up(value: Tensor, wide: torch.dtype) -> Tensor:
    if value.is_complex():
        return value.to(wide.to_complex())
    return value.to(wide) if value.is_floating_point() else value


def _read_wide(experiment: Experiment, traces: Mapping[str, Trace]) -> Patch:
    """Replace the arguments by float32, wherever a name refers to one."""

    def widen(call: Call, time: int, value: Any) -> Any:
        return value.float() if is_float(value) and any(value is x for x in call.given.values()) else None

    places = [place for test in experiment.failing[:LOOKED] for place in traces[test.name].places]
    return {place: widen for place in places if isinstance(place.node, ast.Name)}


def _round_last(experiment: Experiment, traces: Mapping[str, Trace]) -> Patch:
    """Cast the output to the dtype of the inputs at the end."""
    runs = [traces[test.name] for test in experiment.failing[:LOOKED]]
    return {place: _cast for one in runs for place in one.places if any(x is one.came for x in one.objects[place])}


def _find_lost(experiment: Experiment, traces: Mapping[str, Trace]) -> Finding | None:
    for test in experiment.failing[:LOOKED]:
        trace = traces[test.name]
        dtype = dtype_of(trace.given)
        least = LAST_DIGITS[dtype][0] / 4
        full = [place for place in trace.places if not _is_narrow(trace.objects[place][0], dtype)]
        lost = {place: _measure_error(trace, place) for place in full if is_computed(place)}
        changes: dict[Expression, Change] = {}
        for place, off in lost.items():
            before = max((lost.get(each, 0.0) for each in trace.list_operands(place)), default=0.0)
            if SHOWN > off > max(least, WORSE * before) and (change := put_step(trace, place)):
                changes[place] = change
        places, passing = prove(experiment, {place: {place: change} for place, change in changes.items()})
        if passing:
            digits = -math.log10(lost[places[0]])
            said = f"This is right to {digits:.0f} digits; {name_dtype(dtype)} has {DIGITS[dtype]}."
            right = "With all digits here"
            return describe_breach(experiment, trace, places, "digits-lost", [said], CANCELS, right, passing)
    return None


def _measure_error(trace: Trace, place: Expression) -> float:
    """Measure an expression's error as a share of its checkpoint's largest number; 0 if it has none."""
    value = trace.values[place][0]
    put = put_step(trace, place) if isinstance(value, Tensor) and value.numel() and value.is_floating_point() else None
    right = put(Call(known=trace.known), 0, value) if put else None
    if not isinstance(right, Tensor) or right.shape != value.shape:
        return 0.0
    seen = value.isfinite() & right.isfinite()
    off, largest = (value - right.detach()).abs()[seen], right.detach().abs()[seen]
    return float(off.max() / largest.max()) if seen.any() and largest.max() > 0 else 0.0
