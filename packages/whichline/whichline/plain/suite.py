"""Calls of functions that have a reference, as tests of the engine: what one gives is held against its reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer
from whichline.engine.suite import Suite, Test
from whichline.plain.functions import Functions, Paired
from whichline.plain.parts import is_right, list_outputs
from whichline.plain.reference import PlainReference
from whichline.rules.pairing import list_parameters
from whichline.way.pairs import Pair, Pairs
from whichline.way.probe import is_plain


@dataclass(frozen=True)
class PlainPair(Pair):
    """A function of the code with a reference: both have the same arguments."""

    read_parts: Callable[[Mapping[str, Any]], dict[str, Any]] = dict

    def read(self, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | None:
        parts = self.read_parts(parameters)
        return parts if all(is_plain(x) for x in parts.values() if isinstance(x, Tensor)) else None

    def see(self, answer: Any) -> Any:
        outputs = tuple(list_outputs(answer, {}, ()).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def expect(self, right: Any) -> dict[str, Tensor]:
        return {str(i): x.detach() for i, x in enumerate(right if isinstance(right, tuple) else (right,))}


@dataclass(frozen=True, kw_only=True)
class PlainSuite(Suite):
    """Tests of pytest, and calls that these make, as tests.

    Args:
        functions: those that have a reference.
        run_item: runs a test of pytest by its id, and gives what ended it.
    """

    functions: Functions
    run_item: Callable[[str], BaseException | None]

    def has_written(self, file: str) -> bool:
        return self.functions.code.is_students(file)

    def list_needed(self, problem: str) -> dict[str, str]:
        return dict.fromkeys(self.functions.paired, "")

    def bind(self, run: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
        return named  # parts, whose names are no identifiers

    @cached_property
    def references(self) -> dict[str, PlainReference]:
        followed = self.functions.reference
        return {name: PlainReference(paired, followed) for name, paired in self.functions.paired.items()}

    @cached_property
    def pairs(self) -> Pairs:
        """The functions by their code, as far as it tells their arguments."""
        paired = self.functions.paired.values()
        known = (each for each in paired if list_parameters(each.code) == tuple(each.signature.parameters))
        return {each.key: [PlainPair(each.name, {}, read_parts=each.read)] for each in known}

    def make_item(self, id: str) -> Test:
        """A test of pytest."""
        return Test(id, lambda: None, ("", 0))

    def make_test(self, name: str, problem: str, case: Case) -> Test:
        """A test of what a function gives on some arguments."""
        steps = self.references[case.call].take_steps(case.inputs)
        case = replace(case, expected={name: x.detach() for name, x in steps.outputs.items()})

        def check(case: Case) -> None:
            came = getattr(self.calls, case.call)(**case.inputs)
            parts = came if isinstance(came, tuple) else (came,)
            if len(parts) != len(case.expected):
                raise WrongAnswer(f"{len(parts)} values came, expected {len(case.expected)}")
            for (what, right), part in zip(case.expected.items(), parts, strict=True):
                if not is_right(part, right, case.inputs):
                    raise WrongAnswer(f"the {what} is wrong", answer=part, what=what)

        return Test(name, check, ("", 0), stored=lambda: case, problem=problem)

    def ending(self, test: Test) -> BaseException | None:
        """Run a test of either kind; what ended it."""
        if test.stored:
            return super().ending(test)
        with self.functions.routing(self._call):
            return self.run_item(test.name)

    def _call(self, paired: Paired, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of a test's own by way of the engine."""
        parts = paired.bind(args, kwargs)
        paired.given = args, kwargs
        getattr(self.calls, paired.name)(**parts)
        return paired.came
