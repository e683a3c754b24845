"""Crashes: the student's line that raises, and the condition that only the calls that end there meet."""

import ast
import inspect
import linecache
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import FrameSummary, walk_tb
from typing import Any

import torch

from whichline.engine.compare import WrongAnswer, listed
from whichline.engine.errors import StudentRaised
from whichline.engine.exception_report import ExceptionReport
from whichline.engine.failure import describe
from whichline.engine.finding import MODULE, Finding, mark
from whichline.engine.result import Check
from whichline.engine.suite import Suite, Test
from whichline.engine.syntax import find_end, list_assigned
from whichline.locate.conditions import FOLLOWED, Call, Condition, Fact, find_condition, list_facts
from whichline.locate.numbers import find_cause
from whichline.locate.origins import describe_changes, describe_index, describe_origins, describe_partial
from whichline.locate.repair import Line, describe_repair, list_lines
from whichline.locate.run import Runner
from whichline.locate.source_location import count_failing, name_file

CALLERS = 1  # of the line that raises are shown, without the adapter
NAMED = 3  # so many tests, or more, are not named
FORWARD = re.compile(r'File "(.*?)", line (\d+), in (\S+)')  # in torch's warning about the line whose gradient raised
# in torch's message about an autograd function of the student's
BY_HAND = re.compile(r"function (\w+)Backward returned an incorrect number of gradients")


@dataclass
class _RecordedCalls:
    """The student's adapters; it records their calls, and whether the last one returned."""

    adapters: Any
    calls: list[Call] = field(default_factory=list)
    called: Callable[..., Any] | None = None
    has_returned: bool = False

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name, getattr(self.adapters, name))

    def _call(self, name: str, run: Callable[..., Any], *given: Any, **named: Any) -> Any:
        names = list(inspect.signature(run).parameters)
        self.calls.append(list_facts(name, names, dict(zip(names, given, strict=False)) | named))
        self.called, self.has_returned = run, False
        answer = run(*given, **named)
        self.has_returned = True
        return answer


@dataclass
class _Crash:
    """Tests that raise in the same line."""

    report: ExceptionReport  # on the first test's error
    frames: list[FrameSummary]  # the student's lines in its traceback, the innermost last
    has_returned: bool  # whether the adapter returned, and the backward pass raised
    tests: list[Test] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)  # the last call of each test

    @property
    def place(self) -> object:
        return (self.has_returned, *((self.frames[-1].filename, self.frames[-1].lineno) if self.frames else ()))

    @property
    def key(self) -> object:
        """The place, and the message without numbers."""
        return self.place, re.sub(r"[^A-Za-z]+", " ", self.report.first)

    @property
    def is_nothing(self) -> bool:
        """Tell whether no line raised, and the output is None."""
        return isinstance(self.report.error, WrongAnswer)


def describe_crashes(
    suite: Suite, tests: Sequence[Test], failing: Sequence[Test], passing: Sequence[Test], runner: Runner | None = None
) -> list[Finding]:
    """Report the lines at which tests without an explanation end, and which calls end there.

    Tests that end with an output, or were stopped, are left out. There is no runner if the code cannot be observed.
    """
    crashes: dict[object, _Crash] = {}
    answered: list[Call] = []
    for test in tests:
        error, noted = record_calls(suite, test)
        if crash := _find_crash(error, noted, suite):
            crash = crashes.setdefault(crash.key, crash)
            crash.tests.append(test)
            crash.calls.append(noted.calls[-1])
        answered += noted.calls if noted.has_returned else noted.calls[:-1]
    if not crashes:
        return []
    for test in (*passing, *(each for each in failing if each not in tests)):
        _, noted = record_calls(suite, test)
        answered += noted.calls if noted.has_returned else noted.calls[:-1]
    crashed = sorted(_join([*crashes.values()], answered), key=lambda each: -len(each.tests))
    found: list[Finding] = []
    for crash in crashed:
        explained = {name for each in found for name in each.tests}
        if any(test.name not in explained for test in crash.tests):
            found.append(_report(crash, suite, answered, _list_calls(crashed, but=crash), failing, passing, runner))
    return found


def record_calls(suite: Suite, test: Test) -> tuple[BaseException | None, _RecordedCalls]:
    """Run a test, unless it limits memory; return the error that ended it, and its calls."""
    students = suite.calls.adapters
    noted = suite.calls.adapters = _RecordedCalls(students)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return None if test.memory else suite.ending(test), noted
    finally:
        suite.calls.adapters = students


def _find_crash(error: BaseException | None, noted: _RecordedCalls, suite: Suite) -> _Crash | None:
    """Return the crash if the student's code raised, or returned None; not if it is still to be written."""
    if not isinstance(error, Exception | SystemExit) or not noted.calls:
        return None
    if suite.remote and not isinstance(error, StudentRaised):
        return None
    report = ExceptionReport(error, suite.root, noted.called)
    failure = describe(error, suite.root)
    is_nothing = isinstance(error, WrongAnswer) and report.forgotten is not None
    if not is_nothing and (failure.check is not Check.CALL or not failure.raised):
        return None
    frames = list(report.frames)
    if isinstance(error, SyntaxError) and error.filename:
        start, end = (error.offset or 1) - 1, (error.end_offset or 0) - 1
        frames.append(_make_frame(error.filename, error.lineno or 0, MODULE, suite.root, (start, max(end, start + 1))))
    is_of_gradient = any(at.f_globals.get("__name__") == "torch.autograd" for at, _ in walk_tb(error.__traceback__))
    if noted.has_returned and not (is_nothing or frames or suite.remote or is_of_gradient):
        return None  # the test itself raised, on a bad output
    return _Crash(report, frames, noted.has_returned and not is_nothing)


def _join(crashes: Sequence[_Crash], answered: Sequence[Call]) -> Iterator[_Crash]:
    """Join the crashes of one line with several messages, if one condition describes all of their calls."""
    places: dict[object, list[_Crash]] = {}
    for crash in crashes:
        places.setdefault(crash.place if crash.frames else id(crash), []).append(crash)
    for here in places.values():
        rest = [*answered, *(call for each in crashes if each not in here for call in each.calls)]
        together = _list_calls(here)
        if not rest or find_condition(together, rest):
            yield replace(here[0], tests=[test for each in here for test in each.tests], calls=together)
        else:
            yield from here


def _list_calls(crashes: Sequence[_Crash], but: _Crash | None = None) -> list[Call]:
    return [call for each in crashes if each is not but for call in each.calls]


def _report(
    crash: _Crash,
    suite: Suite,
    answered: Sequence[Call],
    others: Sequence[Call],
    failing: Sequence[Test],
    passing: Sequence[Test],
    runner: Runner | None,
) -> Finding:
    """Report a crash as a finding; `others` are the calls that raise elsewhere."""
    report = crash.report
    if crash.has_returned:  # compare only with calls whose backward pass ran
        answered = [call for call in answered if call not in crash.calls and FOLLOWED in call]
        crash = _place_gradient(crash, suite)
    else:
        crash = replace(crash, frames=[*crash.frames, *_list_causes(crash, suite)])
    frames, said, operands = crash.frames, report.sentences, report.operands
    last = frames[-1] if frames else FrameSummary("", 0, "", line="")
    code, columns = _show(frames, suite.root) if frames else ((), (0, 0))
    imported = [each.filename for each in frames if each.name == MODULE]
    if imported:
        condition, where = None, f"{imported[-1]} cannot be imported: no test that needs it can run."
    else:
        condition, where = _describe(crash, answered, others, re.findall(r"\w+", " ".join((*code[-2:], *operands))))
    facts = condition.facts if condition else ()
    problem, tests = crash.tests[0].problem, tuple(test.name for test in crash.tests)
    id = _name(problem, said[0], facts)
    runner = None if not frames or imported else runner
    cause = _find_cause(runner, crash, failing, passing) if runner and not crash.has_returned else None
    origins = _describe_origins(runner, crash) if runner and not (cause and cause.step) else []
    if cause:
        is_there = (last.filename, last.lineno) == (cause.file, cause.line)
        raised = () if is_there else (_describe_frame(last), f"    {(last.line or '').strip()}")
        said = said[:1] if cause.step else said
        return replace(cause, id=id, said=(*said, *cause.said, *origins, where), code=(*raised, *cause.code))
    return Finding(
        problem,
        id,
        tuple(filter(None, (*said, *origins, where))),
        last.filename,
        last.lineno or 0,
        MODULE if imported else _describe_frame(last).rpartition(" ")[2],
        columns,
        (*code, *operands),
        proof=f"{count_failing(len(crash.tests), len(failing), 'stops', 'stop').capitalize()} at this error.",
        question=report.ask(last.line or "", next((fact.ask for fact in facts if fact.ask), "")),
        tests=tests,
    )


def _list_causes(crash: _Crash, suite: Suite) -> list[FrameSummary]:
    """List the line to mark in place of the one that raised, if the error alone shows it.

    It gives a wrong key or a pair, ends the function that lacks a `return`, or begins the adapter whose parameters do
    not fit.
    """
    report = crash.report
    if cause := report.cause:
        return [_make_node_frame(*cause, suite.root)]
    if code := report.forgotten:
        return [_make_frame(code.co_filename, find_end(code), code.co_qualname, suite.root)]
    code = None if crash.frames or suite.remote else report.called_code
    return [_make_frame(code.co_filename, code.co_firstlineno, code.co_qualname, suite.root)] if code else []


def _describe_origins(runner: Runner, crash: _Crash) -> list[str]:
    """Say where the shapes or dtypes in the raising line come from, if the error alone does not explain it."""
    if crash.report.is_explained:
        return []
    changes = describe_changes(runner, crash.tests[0], crash.report.text) if crash.has_returned else []
    origins = describe_origins(runner, crash.tests[0], crash.report)
    return [*describe_partial(crash.report, runner), *describe_index(crash.report), *origins, *changes]


def _find_cause(runner: Runner, crash: _Crash, failing: Sequence[Test], passing: Sequence[Test]) -> Finding | None:
    """Find the cause of a crash; search in vain only once for one that several problems share."""
    if crash.key in runner.observed.unexplained:
        return None
    if not (cause := _search_cause(runner, crash, failing, passing)):
        runner.observed.unexplained.add(crash.key)
    return cause


def _search_cause(runner: Runner, crash: _Crash, failing: Sequence[Test], passing: Sequence[Test]) -> Finding | None:
    """Find the wrong value that makes tests raise, or else a repair in another line."""
    if not crash.report.is_explained and (cause := find_cause(runner, crash.tests, len(failing))):
        return cause
    last = crash.frames[-1]
    says_it = (last.line or "").lstrip().startswith(("raise", "assert"))  # the code itself refuses the value
    if says_it or crash.report.kind in ("NameError", "ImportError", "ModuleNotFoundError"):
        return None
    near = [*list_lines(crash.report.error), *_list_bound(crash.report)]
    repair = describe_repair(runner, crash.tests, failing, passing, near)
    return repair if repair and (repair.file, repair.line) != (last.filename, last.lineno) else None


def _list_bound(report: ExceptionReport) -> Iterator[Line]:
    """List the lines that give a value to the names in the expression that raised."""
    if not report.calls or not report.node:
        return
    code = report.calls[-1].tb_frame.f_code
    for name in {each.id for each in ast.walk(report.node) if isinstance(each, ast.Name)}:
        yield from ((code.co_filename, code.co_qualname, each.line) for each in list_assigned(code, name))


def _name(problem: str, said: str, facts: Iterable[Fact]) -> str:
    """Make the id of a finding from the error, and the calls in which it is raised."""
    words = " ".join((problem, "raises", re.split(r"\W", said)[0].lower(), *(fact.words for fact in facts)))
    return re.sub(r"\W+", "-", words).strip("-")


def _describe(
    crash: _Crash, answered: Sequence[Call], others: Sequence[Call], mentioned: Sequence[str]
) -> tuple[Condition | None, str]:
    """Find the condition under which a line raises, and say it in a sentence."""
    raises = "The call returns; its backward pass raises" if crash.has_returned else "This raises"
    raises = "The answer is None" if crash.is_nothing else raises
    rest = [*answered, *others]
    if not rest:
        every = " in every call that the tests make" * (len(crash.calls) > 1)
        return None, f"{raises}{every}." if every or crash.has_returned else ""
    condition = find_condition(crash.calls, rest, mentioned)
    unless = find_condition(crash.calls, answered, mentioned) if others else None
    if unless and (not condition or len(unless.facts) < len(condition.facts)):
        return unless, f"{raises} in {unless.words}, unless another line raises first."
    if condition:
        return condition, f"{raises} in {condition.words}, and in no other."
    which = f": {listed(test.name for test in crash.tests)}" * (len(crash.tests) < NAMED)
    return None, f"{raises} in {len(crash.calls)} of the {len(crash.calls) + len(rest)} calls{which}."


def _show(frames: Sequence[FrameSummary], root: Path) -> tuple[tuple[str, ...], tuple[int, int]]:
    """Show the raising line with a mark, below its callers; also return the columns of the mark."""
    last = frames[-1]
    line = linecache.getline(str(root / last.filename), last.lineno or 0).rstrip("\n") if last.colno is not None else ""
    if line:
        start, end = (
            len(line.encode()[:column].decode(errors="ignore")) if column is not None else len(line)
            for column in (last.colno, last.end_colno if last.end_lineno == last.lineno else None)
        )
    else:
        line = last.line or ""
        start, end = 0, len(line)
    calling = [each for each in frames[1:-1] if (each.filename, each.lineno) != (last.filename, last.lineno)]
    callers = [text for each in calling[-CALLERS:] for text in (_describe_frame(each), f"    {each.line}")]
    return (*callers, _describe_frame(last), *(mark(line, start, end) if line else ())), (start, end)


def _place_gradient(crash: _Crash, suite: Suite) -> _Crash:
    """Move a crash to the line whose gradient raised; torch names it when it detects anomalies."""
    if crash.frames or suite.remote:
        return crash
    if (by_hand := BY_HAND.match(crash.report.text)) and (place := crash.report.find_backward(by_hand[1])):
        return replace(crash, frames=[_make_frame(*place, suite.root)])
    with warnings.catch_warnings(record=True) as caught, torch.autograd.set_detect_anomaly(True, check_nan=False):
        warnings.simplefilter("always")
        record_calls(suite, crash.tests[0])
    places = [place for each in caught for place in FORWARD.findall(str(each.message))]
    own = [place for place in places if suite.has_written(place[0])]
    frames = [_make_frame(file, int(line), function, suite.root) for file, line, function in own]
    return replace(crash, frames=frames)


def _make_frame(
    file: str, line: int, function: str, root: Path, columns: tuple[int, int] | None = None
) -> FrameSummary:
    code = linecache.getline(file, line)
    start, end = columns or (len(code) - len(code.lstrip()), len(code.rstrip()))
    return FrameSummary(name_file(file, root), line, function, line=code, end_lineno=line, colno=start, end_colno=end)


def _make_node_frame(at: str, node: Any, root: Path) -> FrameSummary:
    outer, names = getattr(node, "parent", None), list[str]()  # executing has put it there
    while outer:
        names += [outer.name] if isinstance(outer, ast.FunctionDef | ast.ClassDef) else []
        outer = getattr(outer, "parent", None)
    columns = (node.col_offset, node.end_col_offset or 0) if node.end_lineno == node.lineno else None
    file = str(root / at.rpartition(":")[0])
    return _make_frame(file, node.lineno, ".".join(names[::-1]) or MODULE, root, columns)


def _describe_frame(frame: FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno}, in {frame.name.partition('.<locals>.<')[0]}"  # of a comprehension
