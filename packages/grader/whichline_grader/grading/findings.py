"""Look for more in a submission than its results: mistakes in its code, and lines that could hide something.

Neither changes points. Mistakes are found by a process of its own that earns nothing and is thrown away. Every byte of
what that says may have been written by the submission, to be read by its own student and by staff: what names a
problem, a test or a file must be one, and words are cut and made fit to be printed.
"""

import ast
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from whichline.engine.case import Case
from whichline.engine.finding import Finding
from whichline.engine.result import Result
from whichline.engine.suite import Test
from whichline_grader.authoring.spec import load_specs
from whichline_grader.authoring.stored_cases import make_case, public_seed
from whichline_grader.grading.graded import read_finding
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.grading.transcripts import Replayer, ask
from whichline_grader.hidden.drawn import EXAMPLES, DrawnCases
from whichline_grader.hidden.kinds import Spread
from whichline_grader.sandbox.confinement import Sandbox
from whichline_grader.sandbox.interview import Interview, Spent, Starved
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.reply import MAX_NUMBER, ProtocolViolation
from whichline_grader.sandbox.submission import MAX_PARSED_BYTES, Submission, is_the_courses

MOST_DRAWN = 6
LIMITS = Limits(call_seconds=10, seconds=20)
MOST, MOST_LINES, LONGEST = 30, 24, 500  # findings, lines of one, characters in a line
UNREADABLE = "{} of its findings were left out: they are not what the search for mistakes writes"


def request_diagnosis(
    sandbox: Sandbox, submission: Submission, results: Sequence[Result], drawn: Sequence[tuple[Result, Case]] = ()
) -> tuple[tuple[Finding, ...], str]:
    """Findings about the problems of which a public test failed, or one on a case that was drawn.

    And, for staff, whether any was left out. A submission that gives no output gets no findings.
    """
    if sandbox.diagnosis is None:
        return (), ""
    every = [*results, *(result for result, _ in drawn)]
    tests = {result.test: result.problem for result in every if not result.passed}
    given = [field.name for field in fields(Case) if field.init and field.name != "original"]
    cases = [{name: getattr(case, name) for name in given} for _, case in drawn]
    with Interview(sandbox.diagnosis, submission, LIMITS) as interview:
        try:
            answer = interview.ask_for("the advice", [result.as_json() for result in every], cases)
        except Starved:
            return (), ""
    if isinstance(answer.stopped, ProtocolViolation):
        return (), UNREADABLE.format("all")
    match answer.value:
        case [[*said], [*errors]]:
            pass
        case _:
            said, errors = [], ["the search for mistakes gave no answer"] * (answer.failure is not None)
    read = [_read(each, submission.files, tests) for each in said[:MOST]]
    found, left_out = [each for each in read if each], read.count(None)
    trouble = [*map(_shorten, map(str, errors[:MOST])), *[UNREADABLE.format(left_out)] * (left_out > 0)]
    return tuple(found), "; ".join(trouble)


def draw_anew(
    graded: GradedSuite, sandbox: Sandbox, submission: Submission, results: Sequence[Result], spent: Spent
) -> list[tuple[Result, Case]]:
    """Cases that fail, like those of hidden tests that fail in problems whose public tests pass.

    They are drawn from no secret, so that all about them may be told.
    """
    wrong = {result.problem for result in results if not result.hidden and not result.passed}
    failed = {result.test for result in results if result.hidden and result.is_wrong and result.problem not in wrong}
    tests = [test for test in graded.suite.tests if test.name in failed and not test.memory]
    found: list[tuple[Result, Case]] = []
    with Interview(sandbox, submission, graded.course.limits, spent=spent) as interview:
        for test in tests:
            for case in _draw(test) if len(found) < MOST_DRAWN else ():
                followed = graded.suite.make_test(test.name, test.problem, case)
                fails = _try(graded, interview, replace(followed, call=test.call))  # what the hidden test asks
                if fails and (result := _try(graded, interview, followed)):
                    found.append((result, case))
                    break
    return found


def _try(graded: GradedSuite, interview: Interview, test: Test) -> Result | None:
    """The result of a test that a submission fails and the stored answer passes, as that of dropout does not."""
    recorder, recorded = graded.record(test)
    if not recorded.passed:
        return None
    remote_calls = {test.name: recorder.remote_calls}
    result = graded.run(test, Replayer(remote_calls, ask(interview, remote_calls), interview.submission))
    return result if result.is_wrong else None


def _draw(test: Test) -> list[Case]:
    if isinstance(test.drawn, DrawnCases):
        specs = [test.drawn.draw(Spread(public_seed(test.name), turn)) for turn in range(EXAMPLES)]
    else:
        names = {case.name for case in test.cases()}
        specs = [case for spec in load_specs().values() for case in spec.hidden if case.name in names]
    return [make_case(spec, public_seed(f"{test.name} {number}")) for number, spec in enumerate(specs)]


def _read(written: Any, files: Collection[str], tests: dict[str, str]) -> Finding | None:
    """The finding that a worker wrote, if it is one."""
    finding = read_finding(written)
    if finding is None or finding.problem not in tests.values() or (finding.file and finding.file not in files):
        return None
    is_place = all(abs(number) < MAX_NUMBER for number in (finding.line, *finding.columns, *finding.likewise))
    own = {name for name, problem in tests.items() if problem == finding.problem}
    if not is_place or not own.issuperset(finding.tests):
        return None
    texts = ("id", "function", "proof", "question", "section")
    short: dict[str, Any] = {name: _shorten(getattr(finding, name)) for name in texts}
    for name in ("said", "code", "also"):
        short[name] = tuple(map(_shorten, getattr(finding, name)[:MOST_LINES]))
    likewise, named = finding.likewise[:MOST_LINES], tuple(dict.fromkeys(finding.tests))
    return replace(finding, **short, likewise=likewise, tests=named)


def _shorten(text: str) -> str:
    return printable(text.replace("\n", " ")[:LONGEST])


# For staff to look at: what the source could hide behind. What watches a submission from inside of its process is worth
# only what the submission leaves of it. This is read here, out of its reach. It finds names that are written out:
# whoever puts one together needs `getattr`, `eval` or the like, and those are listed too.

MOST_LISTED = 12  # lines that are kept of a submission

LOOKS = "can look into or change what watches it"
BESIDE = "runs beside the call, where nothing is watched"
PAST = "calls a kernel past the functions that are watched"
UNNAMED = "runs or finds what the source does not name"
TOO_LONG, TOO_DEEP = (f"begins a file that cannot be read: it is {why}" for why in ("too long", "nested too deeply"))
MEANS = {
    name: means
    for means, names in {
        LOOKS: "builtins whichline whichline_grader gc globals importlib inspect sys vars",
        BESIDE: "_thread asyncio concurrent multiprocessing threading torch.futures torch.jit.fork "
        "torch.multiprocessing weakref",
        PAST: "_ctypes cffi ctypes numpy.ctypeslib torch.classes torch.library torch.ops torch.utils.cpp_extension",
        UNNAMED: "compile eval exec getattr marshal operator.attrgetter operator.methodcaller pickle runpy setattr",
    }.items()
    for name in names.split()
}
FRAMES = {"cell_contents", "f_back", "f_builtins", "f_code", "f_globals", "f_locals", "gi_frame", "tb_frame"}
HARMLESS = {
    *("__all__", "__call__", "__class__", "__doc__", "__file__", "__getitem__", "__init__", "__name__", "__new__"),
    *("__post_init__", "__qualname__", "__repr__", "__setattr__", "__str__", "__version__", "gc.collect"),
    *("importlib.metadata", "importlib.resources", "sys.argv", "sys.exit", "sys.float_info", "sys.maxsize"),
    *("sys.path", "sys.platform", "sys.stderr", "sys.stdout", "sys.version", "sys.version_info"),
}


def find_means_to_hide(submission: Submission) -> tuple[str, ...]:
    """List the lines of the student's own files that could hide what they call: place, text, and what they can do.

    A file that is not Python is left out: it does not run either.
    """
    lines: list[str] = []
    room, unread = MAX_PARSED_BYTES, -1
    own = {source: path for path, source in sorted(submission.files.items()) if not is_the_courses(path, source)}
    for source, path in own.items():
        room -= len(source)
        unread += room < 0
        for number, means in sorted(_read_means(source).items() if room >= 0 else [(1, TOO_LONG)] * (not unread)):
            lines.append(f"{path}:{number} `{printable(submission.line(path, number))}` {means}")
    lines += [f"{unread} more files: {TOO_LONG}"] * (unread > 0)
    more = len(lines) - MOST_LISTED
    return (*lines[:MOST_LISTED], *([f"and {more} more"] if more > 0 else []))


def _read_means(source: bytes) -> dict[int, str]:
    """The numbers of the lines that could hide something, each with what that is."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about the student's code
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    except (RecursionError, MemoryError):
        return {1: TOO_DEEP}
    return {number: means for number, name in _list_uses(tree) if (means := _judge(name))}


def _judge(name: str) -> str:
    parts = name.split(".")
    if any(part in FRAMES or (part[:2] == part[-2:] == "__" and part not in HARMLESS) for part in parts):
        return LOOKS
    starts = [".".join(parts[:count]) for count in (1, 2, 3)]
    if not HARMLESS.isdisjoint(starts):
        return ""
    if parts[0] == "torch" and any(part[:1] == "_" != part[1:2] for part in parts):
        return PAST
    return next((MEANS[start] for start in starts if start in MEANS), "")


def _list_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that is used, under the name of the module that it was imported from."""
    known: dict[str, str] = {}
    nodes = [*ast.walk(tree)]  # what is around a node comes before it
    for node in nodes:
        if isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    inside: set[int] = set()
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name("getattr" | "setattr"), args=[owner, ast.Constant(str(name)), *_]):
                inside.add(id(node.func))
                yield node.lineno, f"{_resolve(owner, known, inside)}.{name}"
            case ast.Attribute() | ast.Name() if id(node) not in inside:
                yield node.lineno, _resolve(node, known, inside)


def _resolve(node: ast.expr, known: dict[str, str], inside: set[int]) -> str:
    """The name `a.b.c`, or `.b.c` of what has no name. Its parts are noted in `inside`: each is looked at once."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
        inside.add(id(node))
    first = known.get(node.id, node.id) if isinstance(node, ast.Name) else ""
    return ".".join([first, *reversed(attributes)])
