"""Finding wrong numbers: the expressions where the first number goes wrong, reported as findings."""

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from whichline.engine.finding import Finding
from whichline.engine.suite import Test
from whichline.locate.call_by_call import FEW, is_explained, locate, passes_own
from whichline.locate.calls import judge_calls, pair_functions
from whichline.locate.found import (
    Found,
    describe_correction,
    join_patches,
    list_doubtful,
    list_wrong_masks,
    place_in,
)
from whichline.locate.moved import REORDERED, find_returned, move_inside, move_to_origin
from whichline.locate.named import span_of
from whichline.locate.observed import Correction, Observed
from whichline.locate.options import Options
from whichline.locate.probe import Expression
from whichline.locate.run import Patch, Runner, choose_kinds, order_by_generality
from whichline.locate.search import LAST_CHECKPOINT, MAX_PLACES
from whichline.locate.source_location import count_failing, name_file, show_place
from whichline.locate.trace import Trace
from whichline.locate.unpassed import list_unpassed, list_unpassing
from whichline.locate.unused_arguments import find_unread, is_needed
from whichline.locate.values import is_equal, is_one

MOST = 2  # places that are reported
WIDTH = 60  # of an expression in a sentence
EXTRA = "Where in the formula is this step?"
ZEROS = "Which rows of the answer should be 0, and which line of yours sees to that?"
NAN = "Which numbers give NaN here: 0 / 0, or −inf − (−inf)? What should come out in their place?"
ASKED = 3  # failing tests whose arguments are varied


class Numbers(NamedTuple):
    """Where numbers go wrong."""

    findings: Sequence[Finding] = ()
    patch: Options = MappingProxyType({})  # the replacements
    doubtful: Sequence[Expression] = ()  # where else the mistakes may be
    is_sure: bool = True  # whether the findings stand, whatever else is wrong
    first: Sequence[tuple[Finding, Options]] = ()  # what may be the first of two mistakes, if the second is doubtful
    parts: Sequence[tuple[Finding, Options]] = ()  # what may be the first of two mistakes in place of what was found
    alone: Sequence[tuple[Finding, Options]] = ()  # each of two findings, with its replacements
    unpassing: Sequence[Expression] = ()  # calls that may have to pass one more argument


def find_numbers(runner: Runner, wrong: Sequence[Test], failing: Sequence[Test]) -> Numbers:
    """Find where numbers go wrong in these of the failing tests."""
    runner.pairs = runner.pairs or pair_functions(runner, runner.suite.list_needed(wrong[0].problem))
    most = MAX_PLACES if 2 * len(wrong) >= len(failing) else 1  # the tests that raise may show another mistake
    found, right, lead = locate(runner, wrong, most)
    if lead:
        return Numbers(parts=[(_report(move_to_origin(runner.observed, lead), runner, wrong, ""), lead.patch)])
    found = [move_to_origin(runner.observed, each) for each in found]
    if not found or (most == 1 and not all(each.difference.is_simple for each in found)):
        return Numbers()
    patch = join_patches(found)
    passing = [test for test in failing if runner.passes(test, patch)]
    explained = _list_explained(replace(runner, lent=right), passing, found)
    if not explained:
        return Numbers(_find_inner(runner, found, wrong))
    inside = [_move_inside(runner, each) for each in reversed(found)]
    shown = list({each.place: each for each in inside}.values())[::-1]
    proof = _describe_proof(shown, len(explained), len(passing), len(failing))
    findings = [_report(each, runner, explained, proof if each is shown[:MOST][-1] else "") for each in shown[:MOST]]
    if any(each.is_answered and not _describe_unpassed(each, runner.observed) for each in found):
        findings, patch = _find_inner(runner, found, wrong), {}
    else:
        _note_corrections(runner.observed, shown, findings)
    is_half = 2 * len(explained) >= len(failing)
    doubtful = list_doubtful(found) or [each.place for each in found if not is_half]
    is_first_plain = len(found) == 2 and found[0].difference.is_simple and not found[1].difference.is_simple
    masks = [move_to_origin(runner.observed, each) for each in list_wrong_masks(found)[:1]]
    parts = [each.part for each in found if each.part]
    two = found if len(found) == 2 else []
    alone, others, parts = (
        [(_report(each, runner, explained, ""), each.patch) for each in some] for some in (two, masks, parts)
    )
    unshown = [each for each in found if not each.shown]
    unpassing = [call for each in unshown for call in list_unpassing(runner.observed, each.trace, each.place)]
    unpassing = [call for call in unpassing if all(call is not each.place for each in found)]  # that is said already
    return Numbers(findings, patch, doubtful, True, [*alone[:is_first_plain], *others], parts, alone, unpassing)


def _note_corrections(observed: Observed, found: Sequence[Found], findings: Sequence[Finding]) -> None:
    """Note the right values for other problems, each alone and then all together.

    There they may come from an inner call of this adapter, or from checkpoints of the same names.
    """

    def pass_with(patches: Sequence[Patch], runner: Runner, tests: Sequence[Test]) -> bool:
        return any(all(runner.passes(test, patch) for test in tests) for patch in patches)

    pairs = [(findings[i : i + 1], found[i : i + 1]) for i in range(len(findings))]
    for some, its in [*pairs, (findings, found)]:
        inner = join_patches(place_in(each, each.trace.test.cases()[0].call) for each in its)
        observed.corrections.append(Correction(some, partial(pass_with, (inner, join_patches(its)))))


def _list_explained(runner: Runner, passing: Sequence[Test], found: Sequence[Found]) -> list[Test]:
    """List the tests that pass because of the replacements; a few kinds of tests may show it for all."""

    def passes_for_that(test: Test) -> bool:
        return runner.see(test, join_patches(found), "explained", lambda then: is_explained(then, found))

    is_for_all = all(map(passes_for_that, choose_kinds(passing, FEW)))
    return [*passing] if is_for_all else [*filter(passes_for_that, passing)]


def find_cause(runner: Runner, crashing: Sequence[Test], failing: int) -> Finding | None:
    """Find the one wrong value that makes tests raise, with whose checkpoint all of them pass."""
    runner = replace(runner, pairs=pair_functions(runner, runner.suite.list_needed(crashing[0].problem)), lent=())
    found, right, _ = locate(runner, order_by_generality(crashing)[:ASKED], 1)
    patch = join_patches(found)
    if len(found) != 1 or not _has_other_shape(found[0]) or not all(runner.passes(test, patch) for test in crashing):
        return None
    trusting = replace(runner, lent=right)
    if not all(is_explained(trusting.run(test, patch), found) for test in crashing):
        return None
    proof = _describe_proof(found, len(crashing), len(crashing), failing)
    return _report(move_to_origin(runner.observed, found[0]), runner, crashing, proof)


def _has_other_shape(found: Found) -> bool:
    """Tell whether a value has another shape than its checkpoint: other numbers alone make no line raise.

    The right output is no evidence, since no test fails with it.
    """
    value, step = found.trace.values[found.place][0], found.trace.steps.get(found.option.names[0])
    if step is None or step.name.startswith(LAST_CHECKPOINT):
        return False
    return isinstance(value, Tensor) and value.shape != step.value.tensor.shape


def _find_inner(runner: Runner, found: Sequence[Found], failing: Sequence[Test]) -> list[Finding]:
    """Report the replacements that make inner calls right and change the outputs, though the tests still fail."""
    inner = [each for each in found if each.option.adapter]
    patch = join_patches(inner)
    if not any(not is_equal(runner.look(test).came, runner.run(test, patch).came) for test in failing):
        return []
    right = judge_calls(runner, failing, patch).right
    proof = "With this corrected, every call of this function is right; the tests also fail for another reason."
    wrong = [each for each in inner if each.option.adapter in right and not passes_own(runner, each.option.adapter)]
    return [_report(each, runner, failing, proof) for each in wrong][:MOST]


def _move_inside(runner: Runner, found: Found) -> Found:
    """Move a mark into the function that computes a wrong value, unless that function passes its own tests."""
    moved = move_inside(found)
    pairs = runner.pairs.get((moved.place.file, moved.place.function), ())
    return found if any(passes_own(runner, each.adapter) for each in pairs) else moved


def is_rounded(runner: Runner, test: Test) -> bool:
    """Tell whether a test case in float64 is computed in float32, so that only digits are lost."""
    if test.cases()[0].dtype != torch.float64:
        return False
    # Parameters made by a constructor are overwritten later; a table that stays is read again elsewhere.
    objects = runner.look(test).objects.items()
    kept = [x for place, values in objects if not place.function.endswith("__init__") for x in values]
    return any(isinstance(x, Tensor) and x.dtype == torch.float32 for x in kept)


def find_unread_argument(runner: Runner, wrong: Sequence[Test]) -> Numbers:
    """Find an argument that the right output depends on, and that the code never reads."""
    for test in wrong[:ASKED]:
        trace = runner.look(test)
        call = test.cases()[0].call
        if not trace.steps or call not in runner.follow:
            continue
        ran = dict.fromkeys((place.file, place.function) for place in trace.order)
        for file, function, name, node in find_unread(ran, runner.observed.definitions, sorted(trace.arguments)):
            if not is_needed(runner.follow[call], trace.arguments, name):
                continue
            problem = wrong[0].problem
            said = f"Your code never uses `{name}`, but the right answer depends on it."
            tests = tuple(each.name for each in wrong)
            shown = show_place(file, function, node, runner.suite.root)
            finding = Finding(problem, f"{problem}-unread-{name}", (said,), tests=tests, **shown)
            place = Expression(file, function, node, name)  # type: ignore[arg-type]
            return Numbers([finding], doubtful=[place], is_sure=getattr(node, "arg", name) == name)
    return Numbers()


def _describe_proof(found: Sequence[Found], explained: int, passing: int, failing: int) -> str:
    """Say how many tests pass with the replacements; or how many they explain, if more pass."""
    if explained < passing:
        these = {1: "This explains", 2: "These two explain"}.get(len(found), "Together these explain")
        return f"{these} {explained} of the {failing} failing tests."
    return f"{describe_correction(found, MOST)}, {count_failing(explained, failing, 'passes', 'pass')}."


def _report(found: Found, runner: Runner, explained: Sequence[Test], proof: str) -> Finding:
    names = [each for each in found.option.names if found.difference.words.startswith(f"Expected {each}")]
    step = found.trace.steps[(names or found.option.names)[0]]
    place, problem = found.place, explained[0].problem
    words = found.difference.words + _describe_unpassed(found, runner.observed)
    words += _describe_unused(found, runner.observed) + _describe_returned(found, runner.suite.root)
    words = _describe_rewritten(found, runner.suite.root) + words
    is_nan = any(isinstance(x, Tensor) and bool(x.isnan().any()) for x in found.trace.values.get(place, ()))
    others = () if found.origin else found.shown or found.patch
    node = _find_pattern(place.node) if REORDERED.search(words) else place.node
    own = NAN if is_nan else ZEROS if "rows that should be 0" in words else step.ask
    return Finding(
        problem,
        f"{problem}-" + re.sub(r"\W+", "-", step.name.removeprefix("the ")).strip("-"),
        (words,),
        likewise=tuple(each.line for each in others if each.file == place.file and each.line != place.line),
        proof=proof,
        question=EXTRA if found.difference.is_needless else own,
        section=step.section,
        tests=tuple(test.name for test in explained),
        step=step.name,
        **show_place(place.file, place.function, node, runner.suite.root),
    )


def _describe_rewritten(found: Found, root: Path) -> str:
    """Name the line that makes a mask of what is marked, takes rows of it, reshapes or returns it."""
    place = next(iter(found.patch))
    return f"{_name_line(place, found.place, root)} {found.use} this: `{_shorten(place)}`. " if found.origin else ""


def _name_line(place: Expression, beside: Expression, root: Path) -> str:
    return f"Line {place.line}" if place.file == beside.file else f"{name_file(place.file, root)}:{place.line}"


def _shorten(place: Expression) -> str:
    return textwrap.shorten(str(place), WIDTH, placeholder=" …")


def _find_pattern(node: ast.expr | ast.stmt) -> ast.expr | ast.stmt:
    """Find the pattern in a call over several lines, as its operands are right; without one, return the node."""
    arguments = node.args if isinstance(node, ast.Call) and node.end_lineno != node.lineno else []
    patterns = [each for each in arguments if isinstance(each, ast.Constant) and "->" in str(each.value)]
    return patterns[0] if len(patterns) == 1 else node


def _describe_unused(found: Found, observed: Observed) -> str:
    """Name a line that computes a right value which nothing reads."""
    trace = found.trace
    for place in trace.places:
        match = trace.match(place)
        is_made = isinstance(place.node, ast.Call | ast.BinOp) and not trace.is_number(place)
        if match and is_made and match.names[0] in trace.steps and place is not found.place:
            function = observed.definitions.get((place.file, place.function))
            if function is not None and _is_unused(place, function) and not _is_seen(trace, place):
                return f" Line {place.line} computes {match.names[0]}; nothing uses it."
    return ""


def _describe_returned(found: Found, root: Path) -> str:
    """Name the line of the student's own that computes what a call returns, unless its arguments are wrong."""
    trace, place = found.trace, found.place
    is_its = not found.shown and not found.has_other_arguments
    origin = find_returned(trace, place) if is_its else None
    return f" {_name_line(origin, place, root)} computes it: `{_shorten(origin)}`." if origin else ""


def _is_seen(trace: Trace, place: Expression) -> bool:
    """Tell whether another expression has the same tensor or array, so that the code uses it."""
    value = trace.objects[place][-1]
    return any(is_one(each, value) for at, objects in trace.objects.items() if at is not place for each in objects)


def _is_unused(place: Expression, function: ast.FunctionDef) -> bool:
    """Tell whether an expression's value is thrown away, or assigned to a name that is not read afterwards."""
    statements = [each for each in ast.walk(function) if isinstance(each, ast.stmt)]
    own = next((each for each in statements if _is_of(each, place)), None)
    loops = (each for each in statements if isinstance(each, ast.For | ast.While))
    if own is None or any(own in ast.walk(loop) for loop in loops):
        return False
    if isinstance(own, ast.Expr):
        called = place.node.func if isinstance(place.node, ast.Call) else own
        return not place.in_place and not ast.unparse(called).endswith("_")
    targets = own.targets if isinstance(own, ast.Assign) else []
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    read = [each for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)]
    later = [each for each in read if each.id in names and each.lineno > (own.end_lineno or 0)]
    return len(names) == len(targets) == 1 and not later


def _is_of(statement: ast.stmt, place: Expression) -> bool:
    """Tell whether a statement computes just this expression; by position, since the statement may have probes."""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.expr) and span_of(value) == span_of(place.node)


def _describe_unpassed(found: Found, observed: Observed) -> str:
    """Name a parameter that a call leaves at None, if the difference is not simple, or at a wrong default."""
    wrong = next(iter(found.patch)).text.rpartition(".")[2].lstrip("_") if found.shown else ""
    unpassed = {} if found.difference.is_simple and not wrong else list_unpassed(observed, found.place)
    left = [name for name, default in unpassed.items() if name == wrong or default is None]
    return f" This call passes nothing for `{left[-1]}`." if left else ""
