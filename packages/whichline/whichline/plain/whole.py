"""A whole test as one call: the code under test is held against what the reference computes in the same test.

This needs no objects that are made alike: in a test of a port, the original has its own constructor, and its weights
were converted.
"""

from collections.abc import Sequence
from itertools import islice
from traceback import walk_stack
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer, is_float
from whichline.engine.suite import Test
from whichline.locate.deadline import Deadline
from whichline.locate.probe import Recorder
from whichline.locate.run import Runner
from whichline.plain.parts import ANSWER, Parts, take_apart
from whichline.plain.reference import PlainCheckpoints, PlainRunner, PlainSuite, add_outputs, add_step, collect_steps
from whichline.plain.watching import Watching

TEST = "the whole test"  # among the functions that the engine calls


def make_whole(suite: PlainSuite, test: str, deadline: Deadline, is_anew: bool) -> tuple[Runner, Test, bool]:
    """Make a test of the engine whose one call is a test of pytest, its runner, and whether a reference runs in it.

    It passes if the test passes, and each call in it that can be compared returns what the reference returns. With
    `is_anew`, the fixtures that tests share are made for each run, too.
    """
    steps = _collect(suite, test, is_anew)
    if not steps.outputs and not is_anew:
        steps = _collect(suite, test, is_anew=True)
        suite.run_item(test)  # makes the shared fixtures, which the next run would make otherwise

    def check(case: Case) -> None:
        watching = Watching(suite)
        with suite.functions.routing(watching):
            error = getattr(suite.calls, TEST)(lambda: suite.run_item(test, is_anew=is_anew))
        if isinstance(error, AssertionError):
            raise WrongAnswer(str(error)) from error
        if error:
            raise error
        if watching.wrong or watching.texts:
            raise WrongAnswer("a call returns something else than the reference")

    setattr(suite.functions.code.adapters, TEST, lambda run: run())
    case = Case(test, TEST, {}, None, {})
    reference = SimpleNamespace(compute_checkpoints=lambda arguments: steps)
    runner = PlainRunner(suite, {TEST: reference}, suite.functions.code, deadline=deadline)  # type: ignore[arg-type]
    return runner, Test(test, check, ("", 0), stored=lambda: case), bool(steps.outputs)


def _collect(suite: PlainSuite, test: str, is_anew: bool) -> PlainCheckpoints:
    """Run a test, and make checkpoints of what the reference computes in it and in the fixtures made for it."""
    reference, steps = suite.functions.reference, PlainCheckpoints()
    owners: list[nn.Module] = []  # the modules of the reference that the test calls
    called: list[tuple[nn.Module, Any]] = []  # all modules that are called, and what they return

    def leave(frame: FrameType, value: Any) -> None:
        callers = (caller for caller, _ in islice(walk_stack(frame), 1, None))
        if not any(reference.is_students(caller.f_code.co_filename) for caller in callers):
            owners.extend(x for x in (frame.f_locals.get("self"),) if isinstance(x, nn.Module))
            parts: Parts = {}
            take_apart(value, "", parts)
            found = filter(is_float, parts.values())
            name = f"{ANSWER} of {frame.f_code.co_qualname}"
            steps.outputs.update((f"{name}, {i}", x) for i, x in enumerate(found, len(steps.outputs) + 1))

    recorder = Recorder(leave=leave)
    hook = register_module_forward_hook(lambda module, _, value: called.append((module, value)))
    try:
        with reference.run(recorder):
            recorder.begin()
            suite.run_item(test, is_anew=is_anew)
            recorder.end()
    finally:
        hook.remove()
    for name, x in {name: x for owner in owners for name, x in owner.named_parameters()}.items():
        add_step(steps, f"the reference's parameter `{name}`", x)
    collect_steps(steps, recorder, "", is_whole=True)
    for name, values in _group(owners, called).items():
        add_step(steps, f"what each {name} of the reference returns", values)
    add_outputs(steps)
    return steps


def _group(owners: Sequence[nn.Module], called: Sequence[tuple[nn.Module, Any]]) -> dict[str, Tensor]:
    """Stack what the modules of each class return, where these are several tensors of one shape."""
    own = {module for owner in owners for module in owner.modules()}
    kinds: dict[str, list[Tensor]] = {}
    for module, value in called:
        if module in own and isinstance(value, Tensor):
            kinds.setdefault(type(module).__name__, []).append(value)
    alike = {name: values for name, values in kinds.items() if len({x.shape for x in values}) == 1 < len(values)}
    return {name: torch.stack(values) for name, values in alike.items()}
