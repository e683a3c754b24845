"""The recording of one test: its expressions, what each is made of, and where each value comes from."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from whichline.engine.suite import Test
from whichline.locate.probe import Expression
from whichline.locate.times import list_inside
from whichline.rules.pairing import INIT

SIZES = re.compile(r"\b(n?dim|len|numel|size)$")


@dataclass
class Recorded:
    """The expressions of one run, with their values."""

    test: Test
    values: Mapping[Expression, Sequence[Any]]  # of each expression, copies of its values, one for each event
    objects: Mapping[Expression, Sequence[Any]]  # the values themselves, whose identity shows what a name refers to
    order: Sequence[Expression]  # the expression of each event
    depths: Sequence[int]  # how many calls deep each event was
    _operands: dict[Expression, list[Expression]] = field(default_factory=dict, init=False)

    @cached_property
    def places(self) -> list[Expression]:
        """The expressions in the order of their first events; tensors changed in place, of their last events."""
        firsts: dict[Expression, int] = {}
        for i, place in enumerate(self.order):
            firsts[place] = i if place.in_place else firsts.get(place, i)
        return sorted(firsts, key=firsts.__getitem__)

    def value(self, place: Expression) -> list[Any]:
        """Return the values of an expression; of a tensor that is changed in place, the last one."""
        return [*self.values[place]][-1 if place.in_place else 0 :]

    def is_number(self, place: Expression) -> bool:
        """Tell whether an expression is a plain number and not a tensor."""
        return place in self._numbers

    @cached_property
    def _numbers(self) -> set[Expression]:
        return {place for place, values in self.values.items() if all(isinstance(x, int | float) for x in values)}

    def _is_size(self, place: Expression) -> bool:
        """Tell whether an expression is a size of a tensor, whose numbers may be wrong: `x.ndim`, `len(x)`."""
        return self.is_number(place) and (isinstance(place.node, ast.Attribute) or bool(SIZES.search(place.called)))

    @cached_property
    def wrappers(self) -> set[tuple[str, str]]:
        """The functions that decorators put around others, and that only pass on what these return."""
        calls = (each for each in self.places if each.unpacks_arguments and "<locals>" in each.function)
        return {(each.file, each.function) for each in calls}

    def list_inside(self, place: Expression) -> Iterator[Expression]:
        """List the expressions that ran in the functions that an expression calls, the last one first."""
        return (self.order[each] for each in list_inside(self.depths, self.order.index(place)))

    @cached_property
    def _place_of(self) -> dict[int, Expression]:
        values = (place for place in self.places if not place.in_place and not callable(self.objects[place][0]))
        return {id(place.node): place for place in values}

    def list_operands(self, place: Expression) -> list[Expression]:
        """List the outermost expressions inside an expression or a statement; of a size, none."""
        if place not in self._operands:
            self._operands[place] = [] if self._is_size(place) else [*self._list_inner(place.node)]
        return self._operands[place]

    def _list_inner(self, node: ast.AST) -> Iterator[Expression]:
        for child in ast.iter_child_nodes(node):
            if (inner := self._place_of.get(id(child))) is not None:
                yield inner
            elif not isinstance(child, ast.Attribute) or child is getattr(node, "func", None):
                yield from self._list_inner(child)  # not of `x.device`: no number of x is in it

    def find_origin(self, place: Expression, time: int = 0) -> Expression:
        """Find the expression that computed what a name refers to or a call returns; that of an input is itself."""
        if given := self.find_argument(place, time):
            return self.find_origin(given)
        wanted = self.objects[place][time]

        def is_it(value: Any) -> bool:
            return value is wanted or (type(value) is type(wanted) in (int, float) and value == wanted)

        for before in self.places if time else self.places[: self.places.index(place)]:  # what is read again later
            is_here = not self.is_number(place) or (before.file, before.function) == (place.file, place.function)
            if not is_here or before.is_read or not any(map(is_it, self.objects[before])):
                continue
            if not any(is_it(each) for inner in self.list_operands(before) for each in self.objects[inner]):
                return before
        return place

    def find_handed(self, place: Expression) -> Expression:
        """Find what gave a name its value only by handing it on, as `x.float()` of float32; else the place itself."""
        wanted, before = self.objects[place][0], self.places[: self.places.index(place)] if place.is_read else []
        here = [each for each in before if (each.file, each.function) == (place.file, place.function)]
        handed = [each for each in here if not each.is_read and self.objects[each][0] is wanted]
        return handed[-1] if handed else place

    def is_handed_on(self, place: Expression, divergence: Expression) -> bool:
        """Tell whether an expression in a caller passes on an input unchanged: `x`, or `x.float()` of float32."""
        if (place.file, place.function) == (divergence.file, divergence.function):
            return False
        value, operands = self.objects[place][0], self.list_operands(place)
        is_given = place.is_read and isinstance(self.find_origin(place).node, ast.Name)
        return is_given or any(each is value for operand in operands for each in self.objects[operand])

    def find_argument(self, place: Expression, time: int = 0) -> Expression | None:
        """Find the argument that the caller passes for a parameter when that is read for the n-th time."""
        wanted = self.objects[place][time]
        for call, node in self._list_arguments(place):
            given = self._place_of.get(id(node))
            if given and any(each is wanted for each in self.objects[given]) and self._runs_in(call, place, time):
                return given
        return None

    def _runs_in(self, call: Expression, place: Expression, time: int) -> bool:
        """Tell whether an expression is computed inside a call the n-th time."""
        event = [i for i, each in enumerate(self.order) if each is place][time]
        return any(each is call and event in list_inside(self.depths, i) for i, each in enumerate(self.order))

    def find_caller(self, place: Expression, time: int) -> Expression | None:
        """Find the call, if it is computed once, in which an expression is computed the n-th time alone."""
        events = [i for i, each in enumerate(self.order) if each is place]
        later = ((i, each) for i, each in enumerate(self.order) if i > events[time] and each.function != place.function)
        calls = ((each, {*list_inside(self.depths, i)}) for i, each in later if isinstance(each.node, ast.Call))
        direct, inside = next((pair for pair in calls if events[time] in pair[1]), (None, set[int]()))
        is_one = direct is not None and len(self.objects[direct]) == len(inside.intersection(events)) == 1
        return direct if is_one else None

    def find_call(self, place: Expression) -> Expression | None:
        """Find the call that passes a literal constant for a parameter, or nothing, so that it has its default."""
        given = ((call, node) for call, node in self._list_arguments(place) if isinstance(node, ast.Constant | None))
        return next((call for call, _ in given), None)

    def find_shorter_call(self, place: Expression) -> Expression | None:
        """Find the call during which an expression is computed, if all others of its function pass more arguments."""
        callers = [each for each, inside in self.inside.items() if place in inside]
        if not callers:
            return None
        direct = min(callers, key=lambda each: len(self.inside[each]))
        others = [each for each in self.inside if each.called == direct.called and each is not direct]
        is_shorter = all(_count_arguments(each) > _count_arguments(direct) for each in others)
        return direct if others and is_shorter else None

    def _list_arguments(self, place: Expression) -> Iterator[tuple[Expression, ast.expr | None]]:
        """List the calls during which a parameter is read, each with the argument that it passes for it, or None."""
        if not isinstance(place.node, ast.Name) or place.node.id not in place.parameters:
            return
        name, parameters = place.node.id, [each for each in place.parameters if each not in ("self", "cls")]
        number = parameters.index(name)
        calls = [each for each in self.places if isinstance(each.node, ast.Call) and place in self.inside[each]]
        for call in calls:
            assert isinstance(call.node, ast.Call)
            named = [each.value for each in call.node.keywords if each.arg == name]
            yield from ((call, node) for node in (*call.node.args[number : number + 1], *named))
            is_direct = call.called.rpartition(".")[2] == place.function.removesuffix(f".{INIT}").rpartition(".")[2]
            if is_direct and number >= len(call.node.args) and not named and not call.unpacks_arguments:
                yield call, None

    def is_before(self, place: Expression, other: Expression) -> bool:
        """Tell whether an expression is computed before another one."""
        return [each for each in self.places if each in (place, other)] == [place, other]

    @cached_property
    def inside(self) -> dict[Expression, set[Expression]]:
        """For each call, the expressions that ran inside it."""
        return {place: set(self.list_inside(place)) for place in self.places if isinstance(place.node, ast.Call)}

    def find_sole_origin(self, place: Expression) -> Expression:
        """Find the expression that computed a value if nothing else reads the value; else return the place itself."""
        wanted, origin, handed = self.objects[place][0], self.find_origin(place), self.find_handed(place)
        is_here = (origin.file, origin.function) == (place.file, place.function)
        origin = handed if origin is place or (is_here and handed.is_unpacked) else origin
        beside = [each for each in self.places if (each.file, each.function) == (place.file, place.function)]
        made = [each for each in beside if not isinstance(each.node, ast.Name)]
        made = [each for each in made if not isinstance(x := self.objects[each][0], bool) and x is not wanted]
        read = [inner for each in made for inner in self.list_operands(each)]
        others = [inner for inner in read if inner is not place and isinstance(inner.node, ast.Name)]
        return place if any(each is wanted for other in others for each in self.objects[other]) else origin


def _count_arguments(call: Expression) -> int:
    return len(call.node.args) + len(call.node.keywords) if isinstance(call.node, ast.Call) else 0
