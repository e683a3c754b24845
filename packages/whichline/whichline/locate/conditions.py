"""Finding the simplest condition, about arguments alone, that some calls of an adapter meet and the others do not.

A call has the facts that are true of it; the opposite of a fact is another fact.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from whichline.engine.compare import is_float, listed, name_dtype

MOST_AXES = 6
SIMPLE = 6  # only facts below this rank are combined, or may be true of a few other calls
CHANCE = 7  # facts from this rank on may hold by chance,
ENOUGH = 4  # unless there are so many calls on both sides
FEW = 0.25  # a fact may be true of so many other calls, as a share of the calls in question

# A tutor's question about the argument of a fact.
NONE = "What should the function do when `{0}` is None, and which line of yours sees to that?"
NOT_PASSED = "What value does `{0}` have when nobody passes one?"
AXES = "How many axes does this line take for granted? Should it matter how many come before the last ones?"
DTYPE = "Which tensors meet in this line, what dtype does each have, and in which dtype should it be computed?"
GRADIENTS = "Which operation here does not work on a tensor that requires a gradient?"
VALUE = "What does this line take for granted about `{0}`?"
ONE = "How does broadcasting line up an axis of size 1, and does your code keep it?"
SIZES = "Which tensor, and which axis of it, should each size in this line come from?"


@dataclass(frozen=True)
class Fact:
    """Something that is true of a call."""

    rank: int  # the simplest has 0
    words: str  # after "a call where": "`mask` is None"; or after "a call": "of `run_linear`"
    names: tuple[str, ...] = ()  # of the arguments that it is about
    ask: str = ""  # a tutor's question


FOLLOWED = Fact(2, "gradients are asked for", ask=GRADIENTS)

Call = tuple[Fact, ...]  # all facts that are true of it


@dataclass(frozen=True)
class Condition:
    """A condition that only the calls in question meet, in words that end a sentence."""

    facts: tuple[Fact, ...]
    words: str  # "every call where `mask` is None", or "12 of the 13 calls where `Q` has more than 3 axes"


def find_condition(these: Sequence[Call], others: Sequence[Call], mentioned: Collection[str] = ()) -> Condition | None:
    """Find the simplest condition that all of `these` calls meet and none, or few, of the others.

    It is one fact, or else two, or else one that is true of few others. Sizes that agree in a few calls say nothing. Of
    equally simple facts, one about the arguments that are `mentioned` in the raising line comes first.
    """
    here, there = [frozenset(each) for each in these], [frozenset(each) for each in others]
    distinct = dict.fromkeys(fact for each in these for fact in each)
    facts = sorted(distinct, key=lambda fact: (fact.rank, len({*fact.names} - {*mentioned})))
    common = [fact for fact in facts if all(fact in each for each in here)]
    apart = [fact for fact in common if not any(fact in each for each in there)]
    if apart and apart[0].rank < CHANCE:
        return Condition((apart[0],), f"every call {_join([apart[0]])}")
    simple = [fact for fact in common if fact.rank < SIMPLE]
    for both in sorted(combinations(simple, 2), key=lambda pair: pair[0].rank + pair[1].rank):
        if not any(each.issuperset(both) for each in there):
            return Condition(both, f"every call {_join(both)}")
    never = [fact for fact in facts if fact.rank < SIMPLE and not any(fact in each for each in there)]
    for one, other in sorted(combinations(never, 2), key=lambda pair: pair[0].rank + pair[1].rank):
        if set(one.names) & set(other.names) and all(one in each or other in each for each in here):
            return Condition((one, other), f"every call where {one.words} or {other.words}")
    few = {fact: sum(fact in each for each in there) for fact in simple}
    if few and (least := min(few.values())) <= FEW * len(these) and least < len(others):
        fact = next(fact for fact in few if few[fact] == least)
        return Condition((fact,), f"{len(these)} of the {len(these) + least} calls {_join([fact])}")
    if apart and min(len(these), len(others)) >= ENOUGH:
        return Condition((apart[0],), f"every call {_join([apart[0]])}")
    return None


def _join(facts: Sequence[Fact]) -> str:
    """Join the words of facts as they stand after "a call"."""
    of = [fact.words for fact in facts if fact.words.startswith("of ")]
    where = [fact.words for fact in facts if fact.words not in of]
    return " ".join([*of, f"where {listed(where)}"] if where else of)


def list_facts(adapter: str, names: Sequence[str], arguments: Mapping[str, Any]) -> Call:
    """List the facts that are true of a call; `names` are all parameters of the adapter."""
    tensors = {name: x for name, x in arguments.items() if isinstance(x, Tensor)}
    facts = [Fact(-1, f"of `{adapter}`")]
    for name in dict.fromkeys([*names, *arguments]):
        facts += _list_facts_of_argument(name, name in arguments, arguments.get(name))
    floats = {x.dtype for x in tensors.values() if is_float(x)}
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        is_not = "" if floats == {dtype} else "not "
        facts.append(Fact(2, f"the inputs are {is_not}{name_dtype(dtype)}", ask=DTYPE))
    if floats & {torch.float16, torch.bfloat16}:
        facts.append(Fact(2, "the inputs are in half precision", ask=DTYPE))
    if any(x.requires_grad for x in tensors.values()):
        facts.append(FOLLOWED)
    return (*facts, *_compare_axes(tensors), *_compare_sizes(tensors, arguments))


def _list_facts_of_argument(name: str, is_passed: bool, x: Any) -> Iterator[Fact]:
    if not is_passed:
        yield Fact(1, f"`{name}` is left out", (name,), NOT_PASSED.format(name))
    is_, ask = ("None", NONE) if x is None else ("given", VALUE)
    yield Fact(0, f"`{name}` is {is_}", (name,), ask.format(name))
    if isinstance(x, Tensor):
        yield from _list_facts_of_tensor(name, x)
    elif isinstance(x, bool | str):
        yield Fact(3, f"`{name}` is {x!r}", (name,), VALUE.format(name))
    elif isinstance(x, int | float):
        zero = "0" if x == 0 else "not 0"
        told = ((x < 0, "negative"), (x >= 0, "not negative"), (True, zero), (x == 1, "1"))
        yield from (Fact(3, f"`{name}` is {words}", (name,), VALUE.format(name)) for is_so, words in told if is_so)


def _list_facts_of_tensor(name: str, x: Tensor) -> Iterator[Fact]:
    yield Fact(1, f"`{name}` has {_count_axes(x.ndim)}", (name,), AXES)
    for n in range(MOST_AXES):
        if n != x.ndim:
            side = "more" if n < x.ndim else "fewer"
            yield Fact(2, f"`{name}` has {side} than {_count_axes(n)}", (name,), AXES)
            yield Fact(3, f"`{name}` does not have {_count_axes(n)}", (name,), AXES)
    ones = [axis for axis in range(-x.ndim, 0) if x.shape[axis] == 1]
    yield from (Fact(5, f"`{name}.shape[{axis}]` is 1", (name,), ONE) for axis in ones)
    if not x.is_contiguous():
        yield Fact(8, f"`{name}` is not contiguous", (name,), VALUE.format(name))
    if is_float(x) and x.isinf().any():
        yield Fact(6, f"`{name}` holds infinite numbers", (name,), VALUE.format(name))
    if x.dtype is torch.bool and x.ndim and not x.any(-1).all():
        yield Fact(6, f"a row of `{name}` is all False", (name,), VALUE.format(name))


def _compare_axes(tensors: Mapping[str, Tensor]) -> Iterator[Fact]:
    for (one, x), (other, y) in combinations(tensors.items(), 2):
        more = "as many" if x.ndim == y.ndim else "more" if x.ndim > y.ndim else "fewer"
        yield Fact(4, f"`{one}` has {more} axes {'as' if x.ndim == y.ndim else 'than'} `{other}`", (one, other), AXES)


def _compare_sizes(tensors: Mapping[str, Tensor], arguments: Mapping[str, Any]) -> Iterator[Fact]:
    sizes = [(f"`{name}.shape[{i}]`", name, i, x.shape[i]) for name, x in tensors.items() for i in range(-x.ndim, 0)]
    for (one, name, i, size), (other, its_name, j, its_size) in combinations(sizes, 2):
        differ = "are equal" if size == its_size else "differ"
        yield Fact(6 if i == j else 7, f"{one} and {other} {differ}", (name, its_name), SIZES)
    numbers = {name: x for name, x in arguments.items() if type(x) is int}
    equal = [(one, other) for one, other in combinations(numbers, 2) if numbers[one] == numbers[other]]
    yield from (Fact(5, f"`{one}` and `{other}` are equal", (one, other), SIZES) for one, other in equal)
    for number, n in numbers.items():
        for size_of, name, _, size in sizes:
            is_ = "equal to" if n == size else "above" if n > size else "below"
            yield Fact(7, f"`{number}` is {is_} {size_of}", (number, name), SIZES)
            if n > 0:
                divides = "does not divide" if size % n else "divides"
                yield Fact(7, f"`{number}` {divides} {size_of}", (number, name), SIZES)
        if number in ("dim", "axis") and (x := next(iter(tensors.values()), None)) is not None and x.ndim:
            axis = n % x.ndim
            places = {"the first": axis == 0, "the last": axis == x.ndim - 1}
            for place, is_there in places.items():
                is_not = "" if is_there else "not "
                yield Fact(4, f"`{number}` is {is_not}{place} axis", (number,), VALUE.format(number))
            if not any(places.values()):
                yield Fact(4, f"`{number}` is an axis in the middle", (number,), VALUE.format(number))
    bounds = [(f"`{name}`", name, x) for name, x in numbers.items()]
    for name, x in tensors.items():
        if x.is_floating_point() or x.dtype is torch.bool or not x.numel():
            continue
        for bound, its_name, n in (*bounds, *((words, its_name, size) for words, its_name, _, size in sizes)):
            last = int(x.max())
            if last == n - 1 and its_name in numbers:
                yield Fact(6, f"the largest of `{name}` is {bound} - 1", (name, its_name), VALUE.format(name))
            is_ = "not below" if last >= n else "below"
            yield Fact(7, f"the largest of `{name}` is {is_} {bound}", (name, its_name), VALUE.format(name))


def _count_axes(n: int) -> str:
    return f"{n} {'axis' if n == 1 else 'axes'}"
