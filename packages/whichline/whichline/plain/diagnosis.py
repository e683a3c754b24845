"""Explaining a failing test of a plain suite: the engine searches its first call that differs from the reference."""

import ast
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor

from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer
from whichline.engine.finding import Finding
from whichline.engine.suite import Calls, Test
from whichline.locate.call_by_call import locate, make_tests
from whichline.locate.calls import judge_calls
from whichline.locate.deadline import Deadline
from whichline.locate.found import Found, describe_correction, join_patches, list_doubtful
from whichline.locate.options import Options
from whichline.locate.probe import Expression, Recorder
from whichline.locate.repair import MOST_PASSING, Line, Repair, find_line, find_repair, list_lines
from whichline.locate.run import Experiment, Runner, order_by_generality
from whichline.locate.search import Search
from whichline.locate.source_location import count_failing, name_file, show_place
from whichline.locate.trace import Trace
from whichline.locate.values import is_one
from whichline.plain import evidence
from whichline.plain.functions import Functions
from whichline.plain.parts import ANSWER, copy_parts
from whichline.plain.process import report
from whichline.plain.reference import PlainCheckpoints, PlainRunner, PlainSuite, list_fitting
from whichline.plain.watching import MOST_CASES, Watching, describe_right
from whichline.plain.whole import TEST, make_whole
from whichline.rules.pairing import list_parameters

MOST_SECONDS = 60.0  # of processor time, for one test
LATE = f"The search stopped after {MOST_SECONDS:.0f} seconds of processor time, before it had tried everything."
INSIDE = "It goes wrong inside this call."
WITH_WEIGHTS = "It goes wrong inside this call, or its weights are not those of the reference."
WHOLE = "What the reference computes in this test does not show the place."
RIGHT = "All calls of this test return what the reference returns, as far as they can be compared."
PATIENCE = 5  # times as many mutants as usual: a model has many functions
BESIDE_SECONDS = 5.0  # of processor time, for the tests beside one
Key = tuple[str, str]  # the file and the qualified name of a function
BEGIN = "The first value that the reference does not have is `{}`, {}:{}. It may still be right."


@dataclass(frozen=True)
class Proved:
    """The proved mistakes in one function."""

    found: Sequence[Found]
    patch: Options
    name: str


class Diagnosis:
    """Explains failing tests, one after the other, in a process in which pytest has collected them.

    `run_item` runs a test by its id, and returns the error that ended it.
    """

    def __init__(self, functions: Functions, run_item: Callable[..., BaseException | None], root: Path) -> None:
        self.suite = PlainSuite(root, {}, [], Calls(functions.code.adapters), functions=functions, run_item=run_item)
        self.proved: list[Proved] = []
        self.proved_whole: list[Proved] = []  # where a whole test was one call
        self.repairs: list[tuple[Repair, Finding, bool]] = []  # each with whether it needs all fixtures made anew
        self.failing: dict[str, bool] = {}  # whether tests beside those that are explained fail

    def explain(self, test: str, others: Sequence[str], beside: Sequence[str]) -> list[Finding]:
        """Say which line makes a test fail, or why no line is known.

        The `others` are tests of the same function, which may fail for the same reason. Of the tests `beside` it, in
        the same module, those that pass must pass with a repair, too.
        """
        watching, error = self._watch(test)
        if error is None:
            return report(test, "This test passes when it runs by itself, so its failure cannot be explained.")
        if not watching.wrong and watching.texts:
            return self._find_text(test, *watching.texts[0])
        if not watching.wrong and watching.changing:
            return self._find_changing(test, *watching.changing[0])
        if not watching.wrong:
            said = describe_right(watching) if watching.calls else self.suite.functions.describe_unpaired()
            return self._search_whole(test, beside) or self._find_raised(test, error) or report(test, said)
        runner = self._make_runner()
        again = runner.run(self.suite.make_item(test), {}, noting=False).error
        if type(again) is not type(error):
            return report(test, "This test fails differently each time, so nothing can be proved with it.")
        for known in self.proved:
            if runner.passes(self.suite.make_item(test), known.patch):
                return [self._report(each, known, [test], [test]) for each in known.found]
        if found := self._find_known_repair(test):
            return found
        first = watching.wrong[0]
        # Later calls of an object depend on what the wrong one has left.
        most = 1 if self.suite.functions.paired[first.call].kind else MOST_CASES
        cases = [each for each in watching.wrong if each.call == first.call][:most]
        failing = [test]
        for other in others[: 2 * MOST_CASES]:
            watching, error = self._watch(other)
            if error is not None and len(cases) < MOST_CASES:
                failing.append(other)
                cases += [each for each in watching.wrong if each.call == first.call][:1]
        found = self._search(runner, first, cases, failing, beside)
        return [*found, *report(test, LATE)] if runner.is_late else found

    def _watch(self, test: str) -> tuple[Watching, BaseException | None]:
        watching = Watching(self.suite)
        with self.suite.functions.routing(watching):
            return watching, self.suite.run_item(test)

    def _make_runner(self) -> Runner:
        suite, limit = self.suite, Deadline(MOST_SECONDS)
        return PlainRunner(suite, suite.references, suite.functions.code, suite.pairs, deadline=limit)  # type: ignore[arg-type]

    def _search(
        self, runner: Runner, first: Case, cases: Sequence[Case], failing: Sequence[str], beside: Sequence[str]
    ) -> list[Finding]:
        tests = order_by_generality([self.suite.make_test(f"{i}", "", case) for i, case in enumerate(cases)])
        # The checkpoints of an object count its calls, so those of two test cases differ.
        groups = [[test] for test in tests] if self.suite.functions.paired[first.call].kind else [tests]
        runner.pairs = list_fitting(runner, tests)
        found = next(filter(None, (locate(runner, group)[0] for group in groups)), [])
        tests = [test for test in tests if any(test.name in each.explains for each in found)] or tests
        if any(map(evidence.is_answer, found)) or (len(found) > 1 and any(map(evidence.is_of_few, found))):
            found = []
        if found and judge_calls(runner, tests, join_patches(found)).wrong:
            found = []  # a call inside is wrong with that, too
        if not found or found[0].option.names[0].startswith(f"the {ANSWER}"):
            found = evidence.find_shape(runner, tests) or found
        options = join_patches(found).items()
        patch = {place: replace(option, adapter=option.adapter or first.call) for place, option in options}
        passing = [test for test in failing if found and runner.passes(self.suite.make_item(test), patch)]
        doubtful = list_doubtful(found) or [each.place for each in found if not passing or evidence.is_doubtful(each)]
        if not found or doubtful:
            repair = self._repair_call(runner, first, tests, failing, doubtful, beside)
            marked = {(name_file(each.place.file, self.suite.root), each.place.line) for each in found}
            if repair and (len(found) != 1 or not passing or (repair.file, repair.line) not in marked):
                return [repair]
            if not found:
                return self._find_unproved(runner, first, tests, failing)
        known = Proved(found, patch, first.call)
        self.proved.append(known)
        return [self._report(each, known, passing, failing) for each in found]

    def _find_known_repair(self, test: str) -> list[Finding]:
        """Find a repair of an earlier test with which this one passes, too."""
        for repair, finding, is_anew in self.repairs:
            if repair.passes(self.suite.make_item(test, is_anew)):
                proof = _describe_proof(repair.words, finding.problem, [test], [test])
                return [replace(finding, proof=proof, tests=(test,))]
        return []

    def _search_whole(self, test: str, beside: Sequence[str]) -> list[Finding]:
        """Hold all that runs in a test against what the reference computes in it, where no call shows the place.

        What the fixtures that tests share run comes last, since to make them anew takes long.
        """
        if known_repair := self._find_known_repair(test):
            return known_repair
        ran, has_reference, is_compared = set[Key](), False, False
        told = list[Finding]()
        for is_anew in (False, True):
            runner, whole, has_reference = make_whole(self.suite, test, Deadline(MOST_SECONDS / 2), is_anew)
            order = runner.look(whole).order
            is_compared = not (keys := {(each.file, each.function) for each in order}).isdisjoint(self.suite.pairs)
            if not (has_reference or is_compared) or keys == ran:
                continue
            for known in self.proved_whole:
                if runner.passes(whole, known.patch):
                    return [self._report(each, known, [test], [test]) for each in known.found]
            search = Search(Experiment(runner, [whole]))
            found = search.find() if has_reference else []
            if any(map(evidence.is_answer, found)) or (len(found) > 1 and any(map(evidence.is_of_few, found))):
                found = []
            doubtful = list_doubtful(found)
            is_call = any(map(evidence.has_weights, found[:1]))
            if not found or doubtful or is_call:
                doubtful += [place for each in found for place in evidence.list_inside(each)]
                made = [each for each in reversed(order) if is_anew and (each.file, each.function) not in ran]
                near = [*map(find_line, [*made, *doubtful, *search.divergences])]
                words, others = RIGHT if is_compared else WHOLE, self._list_passing(beside, is_anew)
                if repair := self._find_repair(runner, words, [whole], [test], near, others, is_anew):
                    return [repair]
            if found:
                known = Proved(found, join_patches(found), "")
                told = told or [self._report(each, known, [test], [test]) for each in found]
                if not is_call:  # the weights may be wrong, which a fixture makes
                    self.proved_whole.append(known)
                    return told
            ran = keys
        return told or (report(test, WHOLE) if has_reference and not is_compared else [])

    def _list_passing(self, tests: Sequence[str], is_anew: bool) -> list[Test]:
        """List tests that pass, as many as run in a short time."""
        limit = Deadline(BESIDE_SECONDS)
        for test in tests[:MOST_PASSING]:
            if test not in self.failing and not limit.is_past:
                self.failing[test] = self.suite.run_item(test) is not None
        return [self.suite.make_item(test, is_anew) for test in tests if self.failing.get(test) is False]

    def _report(self, found: Found, known: Proved, passing: Sequence[str], failing: Sequence[str]) -> Finding:
        step, right = found.option.names[0], describe_correction(known.found)
        steps = found.trace.known.steps
        at = steps.lines.get(step) if isinstance(steps, PlainCheckpoints) else None
        said = [found.difference.words]
        said += [f"The reference has it in {name_file(at[0], self.suite.root)}, line {at[1]}."] if at else []
        place = found.place
        said += self._describe_inside(found.trace, place) if found.trace.is_called_rightly(place) else []
        return Finding(
            known.name,
            re.sub(r"\W+", "-", f"{known.name}-{step}").strip("-"),
            tuple(said),
            likewise=() if found.shown else tuple(each.line for each in found.patch if each.line != place.line),
            proof=_describe_proof(right, known.name, passing, failing) if found is known.found[-1] else "",
            tests=tuple(passing or failing),
            step=step,
            **show_place(place.file, place.function, place.node, self.suite.root),
        )

    def _describe_inside(self, trace: Trace, call: Expression) -> list[str]:
        inside = (each for each in trace.places if each in trace.inside[call])
        first = next(filter(trace.is_first_divergence, inside), None)
        said = WITH_WEIGHTS if trace.test.cases()[0].call == TEST else INSIDE
        return [said, *([self._describe_first(first)] if first else [])]

    def _describe_first(self, place: Expression) -> str:
        return BEGIN.format(place, name_file(place.file, self.suite.root), place.line)

    def _find_unproved(self, runner: Runner, first: Case, tests: list[Test], failing: Sequence[str]) -> list[Finding]:
        """Report which call is wrong, and the first value that the reference does not have."""
        error = self.suite.ending(tests[0])
        is_raised = error is not None and not isinstance(error, WrongAnswer)
        divergences = [] if is_raised else self._list_divergences(runner, tests)
        place, said = ({}, self._describe_first(divergences[0])) if divergences else self._find_end(tests[0], error)
        lines = tuple(filter(None, (self._describe_call(first, error), said)))
        id = f"{first.call}-{'raises' if is_raised else 'unproved'}"
        return [Finding(first.call, id, lines, tests=tuple(failing), **place)]

    def _list_divergences(self, runner: Runner, tests: Sequence[Test]) -> list[Expression]:
        """List the first values that the reference does not have, in an inner call that is wrong if there is one."""
        calls = judge_calls(runner, tests)
        runner.lent = calls.right
        inner = (make_tests(self.suite, "", cases) for cases in calls.wrong.values())
        search = Search(Experiment(runner, next(filter(None, inner), tests)))
        # Constructors often draw random numbers.
        divergences = [each for each in search.find_divergences() if not each.function.endswith("__init__")]
        return sorted(divergences, key=lambda place: evidence.is_little(search.find_trace(place), place))

    def _describe_call(self, case: Case, error: BaseException | None) -> str:
        right, _ = self.suite.functions.paired[case.call].reference
        of_reference = f"{right}.{case.call.rpartition('.')[2]}"
        if error and not isinstance(error, WrongAnswer):
            return f"{case.name} raises, and {of_reference} does not."
        return f"{case.name} does not return what {of_reference} returns."

    def _repair_call(
        self,
        runner: Runner,
        first: Case,
        tests: Sequence[Test],
        failing: Sequence[str],
        doubtful: Sequence[Expression],
        beside: Sequence[str],
    ) -> Finding | None:
        """Find a change of the code with which a wrong call is right, or the whole test.

        The whole test is tried for a method, since an earlier call of the object may have gone wrong inside.
        """
        error = self.suite.ending(tests[0])
        words = self._describe_call(first, error)
        if error and not isinstance(error, WrongAnswer):
            near = list_lines(error)
        else:
            near = [*map(find_line, doubtful or self._list_divergences(runner, tests))]
        others = self._list_passing(beside, False)
        repair = self._find_repair(runner, words, tests, failing, near, others)
        if not repair and self.suite.functions.paired[first.call].kind:
            own, whole, _ = make_whole(self.suite, failing[0], runner.deadline, is_anew=False)
            repair = self._find_repair(own, words, [whole], failing, near, others)
        return repair

    def _find_repair(
        self,
        runner: Runner,
        words: str,
        tests: Sequence[Test],
        failing: Sequence[str],
        near: Sequence[Line],
        others: Sequence[Test] = (),
        is_anew: bool = False,
    ) -> Finding | None:
        """Find the one change of the code with which some calls give what the reference gives, and others pass."""
        if not (repair := find_repair(runner, tests, others, near, patience=PATIENCE)):
            return None
        name = tests[0].cases()[0].call
        passing = [test for test in failing if repair.passes(self.suite.make_item(test, is_anew))]
        if 2 * len(passing) < len(failing):
            return None  # as many a change would do
        proof, place = _describe_proof(repair.words, name, passing, failing), repair.show(self.suite.root)
        finding = Finding(name, f"{name}-repair", (words,), proof=proof, tests=tuple(passing), **place)
        self.repairs.append((repair, finding, is_anew))
        return finding

    def _find_changing(self, test: str, case: Case, name: str) -> list[Finding]:
        """Report the line that changes an argument which the reference leaves as it is."""
        trace = self._make_runner().look(self.suite.make_test(test, "", case))
        given = [x for x in trace.given.values() if isinstance(x, Tensor)]
        written = (each for each in trace.places if each.in_place)
        changing = [each for each in written if any(is_one(one, x) for one in trace.objects[each] for x in given)]
        place = [show_place(each.file, each.function, each.node, self.suite.root) for each in changing[:1]]
        said = f"{case.name} changes {name}, which the reference leaves as it is."
        return [Finding(case.call, f"{case.call}-changes", (said,), tests=(test,), **dict(*place))]

    def _find_text(self, test: str, case: Case, words: str) -> list[Finding]:
        """Report a call that returns another text, with the line that returns it."""
        said = (f"{case.name} gives {words}.",)
        return [Finding(case.call, f"{case.call}-text", said, tests=(test,), **self._find_return(case))]

    def _find_raised(self, test: str, error: BaseException) -> list[Finding]:
        """Report the line of the code that raises an exception; what a test asserts is none."""
        place, said = self._find_end(self.suite.make_item(test), error)
        is_raised = place and not isinstance(error, AssertionError)
        return [Finding(TEST, f"{TEST}-raises", (said,), tests=(test,), **place)] if is_raised else []

    def _find_return(self, case: Case) -> dict[str, Any]:
        """Find the line at which a call returns."""
        paired, lines = self.suite.functions.paired[case.call], list[int]()

        def leave(frame: FrameType, _: Any) -> None:
            lines.extend([frame.f_lineno] if frame.f_code is paired.code else [])

        with self.suite.functions.code.run(Recorder(noting=False, limit=sys.maxsize, leave=leave)):
            paired(**copy_parts(case.inputs))
        return self._show_line(*paired.key, lines[-1]) if lines else {}

    def _find_end(self, test: Test, error: BaseException | None) -> tuple[dict[str, Any], str]:
        """Find the line that raises, or else the line that returns, if no value before it is wrong."""
        frames = traceback.walk_tb(error.__traceback__) if error else ()
        own = [(frame, line) for frame, line in frames if self.suite.has_written(frame.f_code.co_filename)]
        while len(own) > 1 and self._is_refused(own[-1][0]):
            own.pop()
        if own and error:
            code, line = own[-1][0].f_code, own[-1][1]
            return self._show_line(code.co_filename, code.co_qualname, line), f"{type(error).__name__}: {error}"
        if not isinstance(error, WrongAnswer):
            return {}, f"{type(error).__name__}: {error}"
        place = self._find_return(test.cases()[0])
        return place, "What this line returns differs from the reference; no earlier value does." if place else ""

    def _is_refused(self, frame: FrameType) -> bool:
        """Tell whether the reference also raises on the arguments of a call, so that the calling line is wrong."""
        code = frame.f_code
        given = {name: frame.f_locals.get(name) for name in list_parameters(code)}
        for pair in self.suite.pairs.get((code.co_filename, code.co_qualname), ()):
            parts, reference = pair.read(given, {}), self.suite.references[pair.adapter]
            steps = None if parts is None else reference.compute_checkpoints(copy_parts(parts), noting=False)
            return steps is not None and steps.error is not None
        return False

    def _show_line(self, file: str, function: str, line: int) -> dict[str, Any]:
        code = linecache.getline(file, line).rstrip()
        node = ast.Name("", lineno=line, end_lineno=line, col_offset=0, end_col_offset=len(code.encode()))
        node.col_offset = len(code) - len(code.lstrip())
        return show_place(file, function, node, self.suite.root)


def _describe_proof(right: str, function: str, passing: Sequence[str], failing: Sequence[str]) -> str:
    if passing:
        return f"{right}, {count_failing(len(passing), len(failing), 'passes', 'pass')}."
    name = function.rpartition(".")[2]
    return f"{right}, this call of {name} returns what the reference returns; the test still fails."
