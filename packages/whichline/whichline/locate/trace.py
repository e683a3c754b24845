"""The trace of one test: which expressions are right, and which is a first divergence."""

import ast
import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from whichline.locate.checkpoints import Step
from whichline.locate.known import Known, Match
from whichline.locate.probe import Expression
from whichline.locate.recorded import SIZES, Recorded
from whichline.locate.times import Event, list_operand_times, list_used
from whichline.locate.values import Axes, Value, as_value, find_layout, identify, is_uniform, take_one_mask

BEGINS = re.compile("zeros|ones|empty|full")
CUTS = re.compile(r"\b(tril|triu)_?$")
MOST_TIMES = 64  # values of an expression in a loop that are compared one by one


@dataclass
class Trace(Recorded):
    """One run of a test, beside the checkpoints of the reference."""

    arguments: Mapping[str, Any]  # of the adapter, as they were when the call began
    known: Known  # the checkpoints on these arguments, and the arguments
    passed: bool
    put: Collection[Expression] = ()  # expressions with a replacement, which later right values do not make right
    given: Mapping[str, Any] = field(default_factory=dict)  # the arguments themselves, which the code may change
    came: Any = None  # what the adapter returned
    error: BaseException | None = None  # what ended the test
    answers: Sequence[Any] = ()  # what right functions returned, for the arguments that they got
    _of_place: dict[Expression, Match | None] = field(default_factory=dict)
    _masks: dict[Expression, bool] = field(default_factory=dict)
    _identities: dict[int, tuple[Any, Hashable]] = field(default_factory=dict)  # by id; it holds the object, too

    @property
    def steps(self) -> Mapping[str, Step]:
        return self.known.steps.taken

    @cached_property
    def sizes(self) -> set[float]:
        """The sizes of the inputs and of the checkpoints."""
        shapes = {float(size) for value in self.known.values.values() for size in value.tensor.shape}
        return shapes | {float(x) for x in self.arguments.values() if isinstance(x, int)}

    def match(self, place: Expression) -> Match | None:
        """Find the checkpoints that an expression equals; None if the reference computes no such value."""
        if place not in self._of_place:
            self._of_place[place] = self._match(self.value(place)) if place in self.values else None
        return self._of_place[place]

    def _match(self, values: list[Any]) -> Match | None:
        """Find the checkpoints once for equal values: in the next run, most values are the same."""
        if any(value is None for value in values):
            return None
        key = tuple(map(self._identify, values))
        if key not in self.known.matches:
            self.known.matches[key] = self._find_match(values)
        return self.known.matches[key]

    def _find_match(self, values: list[Any]) -> Match | None:
        if len(values) > 1 and len({value.shape if isinstance(value, Tensor) else () for value in values}) == 1:
            tensors = [as_value(value).tensor for value in values]
            differ = any(not torch.equal(tensors[0], tensor) for tensor in tensors[1:])
            if differ and (found := self._find(Value(torch.stack(tensors)))):
                return Match((found[0],), (found[1],), together=True)
        found_each = [self.find(value) for value in values[:MOST_TIMES]]
        if not all(found_each):
            return None
        return Match(tuple(each[0] for each in found_each if each), tuple(each[1] for each in found_each if each))

    def find(self, x: Any) -> tuple[str, Axes] | None:
        """Find the checkpoint or the argument that a number or a tensor equals."""
        key = self._identify(x)
        if key not in self.known.found:
            self.known.found[key] = self._find(as_value(x))
        return self.known.found[key]

    def _identify(self, x: Any) -> Hashable:
        if id(x) not in self._identities:
            self._identities[id(x)] = x, identify(x)
        return self._identities[id(x)][1]

    def _find(self, value: Value) -> tuple[str, Axes] | None:
        others = []
        for name, known in self.known.list_alike(value):
            if (axes := find_layout(value, known)) == tuple(range(known.tensor.ndim)):
                return name, axes
            others += [(name, axes)] if axes is not None else []
        if others:
            return others[0]
        if (one := take_one_mask(value.tensor)) is not None:
            return self._find(Value(one))
        return ("a size", ()) if not value.tensor.ndim and float(value.tensor) in self.sizes else None

    @cached_property
    def intermediates(self) -> set[Expression]:
        """The expressions that equal no checkpoint, and from which right values are computed; also their copies."""
        found: set[Expression] = set()
        for place in self.places:
            is_part = isinstance(place.node, ast.Name | ast.Subscript)
            if not is_part and self.match(place) and self._shows_operands(place):
                todo = [*self.list_operands(place)]
                while todo:
                    inner = todo.pop()
                    if inner not in self.put:
                        found.add(inner)
                        todo += self.list_operands(inner)
        found = {place for place in found if not self.match(place)}
        values = {identify(value) for place in found for value in self.values[place]}
        for place in self.places:  # and those that are the same: names, and what a method such as `detach` returns
            is_copy = isinstance(place.node, ast.Call) and not found.isdisjoint(self.list_operands(place))
            if (isinstance(place.node, ast.Name) or is_copy) and not self.match(place):
                found |= {place} if {identify(value) for value in self.values[place]} <= values else set()
        return found

    def _shows_operands(self, place: Expression) -> bool:
        """Tell whether operands are right if an expression is.

        Wrong fractions may give a right mask; and wrong operands a right value, if something is replaced in between.
        """
        value, operands = self.values[place][0], [self.values[each][0] for each in self.list_operands(place)]
        is_mask = isinstance(value, Tensor) and value.dtype == torch.bool
        numbers = [x for x in operands if isinstance(x, Tensor) and x.is_floating_point()]
        if is_mask and any(is_uniform(x) or not torch.equal(x, x.round()) for x in numbers):
            return False
        return not self.put or not (place in self.put or any(each in self.put for each in self.list_inside(place)))

    def is_right(self, place: Expression) -> bool:
        if self.match(place) or place in self.intermediates:
            return True
        times = range(len(self.values.get(place, ())) if self.known.steps.is_partial else 0)
        return bool(times) and all(self._was_right(place, time) for time in times)

    @cached_property
    def operand_times(self) -> dict[Event, list[Event]]:
        return list_operand_times(self.order, self.list_operands)

    @cached_property
    def _used(self) -> set[Event | int]:
        depths = self.depths if self.known.steps.is_partial else None
        return list_used(self.operand_times, depths, self.values, self._is_step_of_operands, self.put)

    def _is_step_of_operands(self, place: Expression, time: int) -> bool:
        return self._is_found(place, time) and self._shows_operands(place)

    def _is_found(self, place: Expression, time: int) -> bool:
        """Tell whether an expression was a step the n-th time that it was computed."""
        value = self.values[place][time] if time < min(len(self.values[place]), MOST_TIMES) else None
        return value is not None and bool(self.find(value))

    def _was_right(self, place: Expression, time: int) -> bool:
        """Tell whether a value was a step or made into one; by way of a name, where any value may be no step."""
        by_name = place.is_read or self.known.steps.is_partial
        is_used = (place, time) in self._used or (by_name and id(self.values[place][time]) in self._used)
        return is_used or self._is_found(place, time)

    def find_first_wrong(self, place: Expression) -> int:
        """Find the first event of an expression whose value is unknown, and of which nothing right is made."""
        times = range(0 if place.in_place else len(self.values[place]))
        return next((time for time in times if not self._was_right(place, time)), 0)

    def is_right_at(self, place: Expression, time: int) -> bool:
        """Tell whether an expression is right, or at least its n-th value is."""
        return self.is_right(place) or (time < len(self.values[place]) and self._was_right(place, time))

    def is_answered(self, place: Expression) -> bool:
        """Tell whether an expression is what a right function returned: if it is wrong, the arguments are."""
        return any(each is answer for each in self.objects[place] for answer in self.answers)

    def is_returned(self, place: Expression) -> bool:
        """Tell whether an expression is the output, in some layout."""
        parts = self.came if isinstance(self.came, tuple | list) else (self.came,)
        value = as_value(self.value(place)[-1])
        return any(isinstance(x, Tensor) and find_layout(value, as_value(x)) is not None for x in parts)

    def is_clean_after(self, divergence: Expression) -> bool:
        """Tell whether everything computed after an expression is right."""
        after = self.places[self.places.index(divergence) + 1 :] if divergence in self.values else []
        computed = [each for each in after if isinstance(each.node, ast.Call | ast.BinOp) and not self.is_number(each)]
        return all(self.is_right(each) for each in computed)

    def is_constructor(self, place: Expression) -> bool:
        """Tell whether an expression is a call that makes a tensor from numbers alone."""
        is_call = isinstance(place.node, ast.Call) and not self.is_number(place) and not place.unpacks_arguments
        return is_call and all(self.is_number(each) for each in self.list_operands(place))

    def is_numeric(self, place: Expression) -> bool:
        """Tell whether an expression is a number, or computed from numbers alone, in several steps."""
        operands = self.list_operands(self._find_maker(place))
        return self.is_number(place) or (bool(operands) and all(map(self.is_numeric, operands)))

    def is_initial_value(self, place: Expression) -> bool:
        """Tell whether an expression is a tensor of equal numbers, as a loop begins with."""
        called, value = place.called, self.values[place][0]
        if not called or not (self.is_constructor(place) or BEGINS.search(called)) or not isinstance(value, Tensor):
            return False
        is_mask = value.dtype == torch.bool
        begins = self._is_cut(place) if is_mask else value.is_floating_point() or BEGINS.search(called)
        is_one = value.numel() == 1 and bool(BEGINS.search(called) or value.isinf())
        return bool(begins) and (is_uniform(value) or is_one)

    def _is_cut(self, place: Expression) -> bool:
        """Tell whether a triangle is cut out of a tensor."""
        cut = (operand for each in self.places if CUTS.search(each.called) for operand in self.list_operands(each))
        return any(self._find_maker(each) is place for each in cut)

    def _find_maker(self, place: Expression) -> Expression:
        """Find the expression that made a tensor which is only read here."""
        return self.find_origin(place) if isinstance(place.node, ast.Name) and not self.is_number(place) else place

    def _is_kept(self, place: Expression) -> bool:
        """Tell whether an expression reads an attribute in which this run has put a value: a buffer."""
        return self._is_held(place) and self.find_origin(place) is not place

    def _is_held(self, place: Expression) -> bool:
        """Tell whether an expression reads an attribute of an object."""
        return isinstance(place.node, ast.Attribute) and not self.list_operands(place)

    def is_standalone(self, place: Expression) -> bool:
        """Tell whether an expression is a tensor made from numbers alone, or an attribute of an object."""
        return (self._is_held(place) and not self.is_number(place)) or self.is_constructor(place)

    def is_first_divergence(self, place: Expression, allows_unknown: bool = False) -> bool:
        """Tell whether an expression is wrong although its operands are right.

        With `allows_unknown`, an operand may be unknown if its own operands are right.
        """
        operands = self.list_operands(place)
        if self.is_right(place) or self.values[place][0] is None:
            return False
        if not operands and self.is_number(place):
            return self.is_lost_number(place)
        if isinstance(place.node, ast.Name) or self.is_initial_value(place) or place.is_unset or self._is_kept(place):
            return False
        if self.is_number(place) and not math.isfinite(self.values[place][0]):
            return False
        if self.is_number(place) and isinstance(self.values[place][0], int):  # of a tensor, as x.dim() is
            is_bool = isinstance(self.values[place][0], bool)
            varies = len(set(self.values[place])) > 1 and not SIZES.search(place.called)  # in a loop, so it is no size
            return not is_bool and (varies or all(map(self.is_number, operands))) and self.has_right_operands(place)
        return self.has_right_operands(place, allows_unknown, may_count=self._is_own_mask(place))

    def _is_own_mask(self, place: Expression) -> bool:
        """Tell whether an expression is a tensor of truth values, and not just what a call of its function returns."""
        x = self.objects[place][0]
        others = (each for each in self.places if each.called and each.function != place.function)
        returns = (y is x for each in others for y in self.objects[each])
        return isinstance(x, Tensor) and x.dtype == torch.bool and not any(returns)

    def is_lost_number(self, place: Expression) -> bool:
        """Tell whether an expression is a literal fraction, although the adapter was called with another fraction."""
        value, given = self.values[place][0], [x for x in self.arguments.values() if type(x) is float]
        is_other = type(value) is float and math.isfinite(value) and bool(given) and value not in given
        return is_other and self.find_origin(place) is place

    def is_constant(self, place: Expression) -> bool:
        """Tell whether an expression is a number, or a tensor made from numbers alone, as many masks are."""
        is_once = len(self.values[place]) == 1  # in a loop, a name may hold another value later
        maker, value = self._find_maker(place) if is_once else place, self.values[place][0]
        is_filled = isinstance(value, Tensor) and value.numel() > 1 and not is_uniform(value)  # since it was made
        is_initial = not is_filled and self.is_initial_value(maker)
        return is_initial or self.is_constructor(place) or self.is_mask(place) or self.is_number(place)

    def is_mask(self, place: Expression) -> bool:
        """Tell whether an expression is a mask that several steps make from numbers alone."""
        value = self.values[place][0]
        if place not in self._masks and isinstance(value, Tensor) and value.dtype == torch.bool:
            self._masks[place] = False  # while its operands are looked at, one of which may refer to it
            operands = self.list_operands(self.find_origin(place))
            is_made = all(self.is_constant(each) or self._is_counted(each) for each in operands)
            self._masks[place] = bool(operands) and not place.in_place and is_made
        return self._masks.get(place, False)

    def _is_counted(self, place: Expression) -> bool:
        """Tell whether an expression is a tensor of whole numbers, such as positions, made from no input."""
        value = self.values[place][0]
        if not isinstance(value, Tensor) or value.is_floating_point() or value.dtype == torch.bool:
            return False
        origin = self.find_origin(place)
        is_made = isinstance(origin.node, ast.Call | ast.BinOp | ast.Subscript)
        return is_made and all(self.is_number(each) or self._is_counted(each) for each in self.list_operands(origin))

    def _find_filler(self, operand: Expression) -> Expression | None:
        """Find the statement that last set elements of what an expression reads, as a loop fills a buffer."""
        fillers = (each for each in reversed(self.places) if each.in_place and each is not operand)
        return next((each for each in fillers if self.objects[each][-1] is self.objects[operand][0]), None)

    def is_called_rightly(self, place: Expression) -> bool:
        """Tell whether an expression calls a function with right arguments, and is wrong, but is not the output."""
        is_call = isinstance(place.node, ast.Call) and self.values[place][0] is not None and bool(self.inside[place])
        is_wrong = is_call and not (self.is_number(place) or self.is_right(place) or self.is_returned(place))
        return is_wrong and self.has_right_operands(place, looks_inside=False)

    def has_right_operands(
        self, place: Expression, allows_unknown: bool = False, looks_inside: bool = True, may_count: bool = False
    ) -> bool:
        """Tell whether the operands of an expression are right, and everything that runs inside it.

        With `allows_unknown`, an operand may be unknown if its own operands are right. With `may_count`, positions
        that the code counts itself are right: they are a checkpoint only in some tests.
        """
        time = self.find_first_wrong(place)
        operands = [each for each in self.list_operands(place) if not self.is_constant(each)]
        operands = [each for each in operands if not (may_count and self._is_counted(each))]
        inside = [each for each in self.list_inside(place) if not self.is_number(each)] if looks_inside else []
        inside = [each for each in inside if (each.file, each.function) not in self.wrappers]
        times = self.operand_times[place, time + len(self.values[place]) - 1 if place.in_place else time]
        return all(
            all(self.is_right_at(*each) for each in times if each[0] is operand)
            or (allows_unknown and self.has_right_operands(self._find_filler(operand) or self.find_origin(operand)))
            for operand in operands
        ) and all(self.is_right(each) for each in inside)
