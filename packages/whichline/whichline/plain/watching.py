"""Comparing the calls of a test with the reference."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from whichline.engine.case import Case
from whichline.locate.run import copy_tensors
from whichline.locate.values import is_equal
from whichline.plain.functions import Paired
from whichline.plain.objects import UnlikeError
from whichline.plain.parts import ANSWER, FORM, Parts, copy_parts, is_right, list_arguments, list_outputs, list_texts
from whichline.plain.reference import PlainCheckpoints, PlainSuite, list_drawn

MOST_CASES = 4  # calls of one function that are searched together


@dataclass
class Watching:
    """Compares each call that a test makes of a function with its reference."""

    suite: PlainSuite
    calls: dict[str, int] = field(default_factory=dict)  # the number of calls, by function
    wrong: list[Case] = field(default_factory=list)  # calls that return other numbers, in order
    texts: list[tuple[Case, str]] = field(default_factory=list)  # calls that return another text, and the difference
    changing: list[tuple[Case, str]] = field(default_factory=list)  # calls that change an argument; only the code does
    unfit: dict[str, str] = field(default_factory=dict)  # by function: why its calls cannot be compared

    def __call__(self, paired: Paired, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.calls[paired.name] = self.calls.get(paired.name, 0) + 1
        try:
            arguments = paired.signature.bind(*args, **kwargs).arguments
            before = copy_tensors(list_arguments(arguments))
            parts = copy_parts(now := paired.bind(args, kwargs))
            given = {**copy_parts(parts), FORM: now[FORM]}  # whose form refers to the twin in use
            steps = self.suite.references[paired.name].compute_checkpoints(given, noting=False)
            paired.note(args, parts)
        except TypeError as error:
            self.unfit[paired.name] = str(error)
            return paired.function(*args, **kwargs)
        states = list_drawn()
        try:
            came = paired.function(*args, **kwargs)
        except Exception:
            self._note(paired, parts, steps, is_wrong=steps.error is None)
            raise
        drawn = {name for name, state in list_drawn().items() if state != states[name]}
        if steps.error:
            is_unlike = isinstance(steps.error, UnlikeError)
            raised = "" if is_unlike else f"the reference raises {type(steps.error).__name__}: "
            self.unfit[paired.name] = f"{raised}{steps.error}"
            return came
        self.suite.pair_returned(came, steps.came)
        ours, theirs = list_texts(came), list_texts(steps.came)
        if ours != theirs:
            self.texts.append((self._make_case(paired, parts), _describe_texts(ours, theirs)))
        if drawn and steps.drawn and drawn != steps.drawn:
            names = (" and ".join(sorted(each)) for each in (drawn, steps.drawn))
            self.unfit[paired.name] = "it draws its random numbers from {}, and the reference from {}".format(*names)
        elif not steps.outputs and not theirs and came is not steps.came:
            self.unfit[paired.name] = f"it returns {type(steps.came).__name__}, which holds no number"
        else:
            self._note(paired, parts, steps, _is_wrong(list_outputs(came, arguments, paired.changed), steps, parts))
            left = [name for name, x in list_arguments(arguments).items() if not is_equal(x, before.get(name))]
            left = [name for name in left if name in steps.unchanged]
            self.changing += [(self._make_case(paired, parts), left[0])] if left else []
        return came

    def _note(self, paired: Paired, parts: Parts, steps: PlainCheckpoints, is_wrong: bool) -> None:
        if is_wrong and steps.outputs and sum(each.call == paired.name for each in self.wrong) < MOST_CASES:
            self.wrong.append(self._make_case(paired, parts))

    def _make_case(self, paired: Paired, parts: Parts) -> Case:
        return Case(f"Call {self.calls[paired.name]} of {paired.name}", paired.name, parts, None, {})


def _describe_texts(ours: Mapping[str, str | bytes], theirs: Mapping[str, str | bytes]) -> str:
    """Say how the first text that differs does."""
    name = next(name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name))
    here, there = (reprlib.repr(texts[name]) if name in texts else "nothing" for texts in (ours, theirs))
    where = name.removeprefix(ANSWER)
    return f"{here}{f' as its {where}' if where else ''}, and the reference {there}"


def _is_wrong(came: dict[str, Tensor], steps: PlainCheckpoints, parts: Parts) -> bool:
    right = steps.outputs
    return [*came] != [*right] or not all(is_right(came[name], x, parts) for name, x in right.items())


def describe_right(watching: Watching) -> str:
    """Say that all calls are right, or which cannot be compared."""
    if watching.unfit:
        name, why = next(iter(watching.unfit.items()))
        return f"Calls of {name} cannot be compared: {why}."
    names = ", ".join(f"{name} ({count})" for name, count in watching.calls.items())
    return (
        f"All calls of this test return what the reference returns, but for rounding: {names}. "
        "The mistake is in the test, in code without a reference, or in the last digits."
    )
