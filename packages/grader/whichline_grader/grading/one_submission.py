"""One submission: run both suites on it and find what is wrong, or run one of its tests again."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
import torch
from torch import Tensor

from whichline.engine.assignment import FILE_NAME, get_root
from whichline.engine.compare import in_dtype
from whichline.engine.result import Outcome, Result
from whichline.engine.suite import Test
from whichline.rules.forbidden import load_forbidden
from whichline.rules.watch import Use
from whichline_grader.authoring.spec import Adapter, Figure, find_figure, reference_of
from whichline_grader.grading import transcripts
from whichline_grader.grading.carried_forward import StandIn, choose_tests, find_lessons
from whichline_grader.grading.copies import find_copies
from whichline_grader.grading.findings import draw_anew, find_means_to_hide, request_diagnosis
from whichline_grader.grading.graded import Drawn, Notes, describe_for_student
from whichline_grader.grading.suite import GradedSuite, name_figure
from whichline_grader.grading.transcripts import RemoteCalls, Replayer, Transcript, ask, find_source
from whichline_grader.sandbox.confinement import Sandbox, SandboxError
from whichline_grader.sandbox.inside.frames import apply
from whichline_grader.sandbox.interview import Interview
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.remote_call import RemoteCall
from whichline_grader.sandbox.reply import Reply
from whichline_grader.sandbox.submission import Submission

MAX_SHOWN = 3  # lines that break the rules, of a work
Uses = Mapping[str, Collection[Use]]  # by problem


class Faulty(Exception):
    """A test that ended with an error of ours; all of the submission is graded again."""


def grade_one(
    suite: GradedSuite, sandbox: Sandbox, submission: Submission, transcript: Transcript | None = None
) -> tuple[list[Result], Notes, Transcript]:
    """Return the result of every test, what else the report says, and what was asked.

    A submission that has a `transcript` of its earlier answers runs no code, but for tests that are asked again with
    earlier problems answered right for the first time.
    Faulty if a test could not be run, and not by the submission's doing; outside of a test SandboxError or Starved.
    """
    with Interview(sandbox, submission, suite.course.limits) as interview:
        grader = _Grader(suite, sandbox, interview, transcript)
        # All answers that count are in: from here on a process of the submission may see what is right.
        grader.keep(grader.carry_forward(grader.run()))
        if not transcript:
            grader.find_what_is_wrong()
    return grader.results, grader.take_notes(), replace(grader.transcript, workers=interview.spent.workers)


class _Grader:
    """The grading of one submission, as far as it has got."""

    def __init__(self, suite: GradedSuite, sandbox: Sandbox, interview: Interview, known: Transcript | None) -> None:
        self.suite, self.sandbox, self.interview = suite, sandbox, interview
        self.results: list[Result] = []
        self.transcript = known or Transcript(layer=str(sandbox.achieved))
        self._recorded = Replayer(suite.remote_calls, self.transcript.replies, interview.submission)
        self._public = dict.fromkeys(test.name for test in suite.suite.tests if not test.hidden)
        self._carried: dict[str, str] = {}  # by test the name of its answers with something lent

    def ask(self, names: set[str]) -> None:
        """Take answers to the questions of these names that are not recorded, of public tests first."""
        self.transcript.replies.update(ask(self.interview, *self._group(names - self.transcript.replies.keys())))

    def _group(self, names: set[str]) -> tuple[RemoteCalls, RemoteCalls]:
        """The questions of these names, apart from those of no public test."""
        public = self.suite.choose(self._public.keys() & names)
        return public, self.suite.choose(names - public.keys())

    def run(self) -> list[Result]:
        """Take the answers to the questions of all tests, and run these on them."""
        self.ask({test.name for test in self.suite.suite.tests})
        return [self.suite.run(test, self._recorded) for test in self.suite.suite.tests]

    def carry_forward(self, results: Sequence[Result]) -> list[Result]:
        """Run again what may fail for mistakes in earlier problems alone, with these answered right."""
        lessons = find_lessons(self.suite, results)
        chosen = choose_tests(self.suite, results, lessons)
        self._carried = {test: transcripts.name_carried(functions, test) for test, functions in chosen.items()}
        needed = set[str]().union(*chosen.values())
        lender = StandIn([lesson for lesson in lessons if lesson[0].call in needed])
        if missing := {test for test, name in self._carried.items() if name not in self.transcript.replies}:
            limits, spent = self.suite.course.limits, self.interview.spent
            with Interview(self.sandbox, self.interview.submission, limits, lender, spent) as interview:
                replies = ask(interview, *self._group(missing))
            for test in replies:
                self.transcript.replies[self._carried[test]] = replies[test]
                used = (lender.used[remote_call] for remote_call in self.suite.remote_calls[test])
                self.transcript.carried[self._carried[test]] = sorted(set[str]().union(*used))
        return [self._judge_again(*pair) for pair in zip(self.suite.suite.tests, results, strict=True)]

    def _judge_again(self, test: Test, result: Result) -> Result:
        """The result of a test, or a pass if it fails and passes with what was lent; an error of ours stays one."""
        name = self._carried.get(test.name, "")
        if not (lent := self.transcript.carried.get(name)):
            return result
        again = self.suite.run(test, self._recorded, name)
        if again.passed:
            why = f"passes when the right program answers {' and '.join(lent)}, which is charged in its own problem"
            return replace(again, staff=why)
        return again if again.outcome is Outcome.ERROR else result

    def keep(self, results: Sequence[Result]) -> None:
        """Keep the results, those of hidden tests in words for students."""
        submission = self.interview.submission
        for test, result in zip(self.suite.suite.tests, results, strict=True):
            if result.outcome is Outcome.ERROR:
                raise Faulty(f"{result.test}: {result.staff or result.text}")
            shown = describe_for_student(result, submission, stored=bool(test.stored)) if test.hidden else result
            self.results.append(shown)

    def find_what_is_wrong(self) -> None:
        """Find what is wrong in what fails; of hidden tests that fail alone, on cases like theirs.

        It earns nothing, so an error of ours in it is told to staff, and leaves the grading as it is.
        """
        submission = self.interview.submission
        public = [result for result in self.results if not result.hidden]
        try:
            drawn = draw_anew(self.suite, self.sandbox, submission, self.results, self.interview.spent)
            if any(not result.passed for result in public) or drawn:
                found = request_diagnosis(self.sandbox, submission, public, drawn)
                self.transcript.explanations, self.transcript.trouble = found
            if figure := find_figure({result.problem for result in public if not result.passed}):
                self.ask({name_figure(figure)})
                self._recorded.start(name_figure(figure))
                self.suite.proxy.respondent = self._recorded
                self.transcript.figure = draw(figure, getattr(self.suite.suite.calls, figure.call))
        except SandboxError:
            raise
        except Exception as error:
            self.transcript.trouble = printable(f"the search for mistakes ended with {type(error).__name__}: {error}")

    def take_notes(self) -> Notes:
        """Collect what the report says besides the results, of output only that of public tests."""
        if self.interview.imported:
            self.transcript.replies["import"] = [self.interview.imported]
        shown = [each for name in ("import", *self._public) for each in self.transcript.replies.get(name, ())]
        failed = {result.test for result in self.results if not result.passed}
        public, hidden = (self._collect_uses(hidden=each) for each in (False, True))
        forbidden = judge(public, hidden)
        listed = {line for works in forbidden.values() for lines in works.values() for line in lines}
        uses = {str(use): use.source for uses in public.values() for use in uses}
        has_figure = find_figure({result.problem for result in self.results if not (result.passed or result.hidden)})
        return Notes(
            taken_in=self.interview.submission.remarks,
            could_hide=find_means_to_hide(self.interview.submission),
            copied=find_copies(self.interview.submission),
            alone=self._list_alone(failed),
            trouble=self.transcript.trouble,
            stdout="".join(each.printed[0] for each in shown),
            stderr="".join(each.printed[1] for each in shown),
            missing=tuple(sorted({name for each in shown for name in each.missing})),
            explanations=tuple(each for each in self.transcript.explanations if failed.issuperset(each.tests)),
            figure=self.transcript.figure if has_figure else None,
            forbidden=forbidden,
            sources={line: source for line, source in uses.items() if line in listed},
        )

    def _list_alone(self, failed: Collection[str]) -> tuple[str, ...]:
        """List the problems that fail and call nothing of the earlier ones that were answered right for them."""
        asked = {each.name: each.problem for each in self.suite.suite.tests if each.name in self._carried}
        calls = {problem for test, problem in asked.items() if self.transcript.carried[self._carried[test]]}
        return tuple(dict.fromkeys(id for test, id in asked.items() if test in failed and id not in calls))

    def _collect_uses(self, hidden: bool) -> dict[str, set[Use]]:
        found: dict[str, set[Use]] = {problem: set() for problem in self.suite.problems}
        for test in self.suite.suite.tests:
            if test.hidden is hidden:
                carried = self.transcript.replies.get(self._carried.get(test.name, ""), ())
                replies = (*self.transcript.replies[test.name], *carried)
                for use in (use for reply in replies for use in reply.forbidden):
                    found[test.problem].add(replace(use, source=find_source(self.interview.submission, use)))
        return found


def draw(figure: Figure, call: Adapter) -> Drawn:
    own = figure.measure(call)
    return Drawn(figure.title, figure.row, figure.compare(own), figure.caption, own, figure.right(), figure.allowed())


def judge(public: Uses, hidden: Uses) -> dict[str, dict[str, tuple[str, ...]]]:
    """For each problem, the works that are not the student's own, and the lines that ran them.

    All of it was seen by the watch beside the submission (`whichline/rules/watch.py`). Nothing is read in the source:
    what is only written there may never run. Best effort, as whatever runs in the same process as what it watches.

    A hostile worker chooses what it reports, and could spell hidden inputs with it. So the lines that are shown are
    what public tests ran, before it had a hidden input; if only hidden ones ran any, it is one function. Of functions
    that do no problem's work one is enough: it costs all points.
    """
    judged = {}
    rules = load_forbidden(get_root() / FILE_NAME)
    for problem, uses in public.items():
        # A use has no place where the submission has no such line.
        seen, later = (
            sorted(use if use.source else Use("", 0, use.function) for use in each if use.function in rules.names)
            for each in (uses, hidden[problem])
        )
        works: dict[str, tuple[str, ...]] = {}
        for use in seen:
            shown = works.get(rules.name_work(use.function), ())
            works[rules.name_work(use.function)] = (*shown, str(use))[:MAX_SHOWN]
        for use in later:
            work = rules.name_work(use.function)
            if work in public or not works.keys() - public.keys():
                works.setdefault(work, (f"{use.function}, in a hidden test",))
        if works:
            judged[problem] = works
    return judged


def find_tests(graded: GradedSuite, name: str) -> list[Test]:
    """The test, or those of the test function, that is called `name`; click.UsageError if no test is."""
    if not (tests := [test for test in graded.suite.tests if name in (test.name, test.function)]):
        names = sorted({each for test in graded.suite.tests for each in (test.name, test.function)})
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"is it {' or '.join(near)}?" if near else "results.json has the names"
        raise click.UsageError(f"no test is called {name}; {hint}")
    return tests


def ask_again(graded: GradedSuite, sandbox: Sandbox, submission: Submission, tests: Sequence[Test]) -> Transcript:
    """Ask a submission what some tests ask; SandboxError if it cannot be asked."""
    with Interview(sandbox, submission, graded.course.limits) as interview:
        return Transcript({**ask(interview, graded.choose([test.name for test in tests]))})


def reproduce_tests(graded: GradedSuite, submission: Submission, tests: Sequence[Test], transcript: Transcript) -> None:
    """Run some tests on what a submission has answered, and print what came of it and what its student was told.

    Of a test that did not pass, what was asked is what it failed on; of a property test, the smallest.
    """
    recorded = Replayer(graded.remote_calls, transcript.replies, submission)
    for test in tests:
        result = graded.run(test, recorded)
        click.secho(f"{result.test}: {result.outcome}", bold=True)
        if result.text:
            click.echo(result.text)
        if asked := graded.remote_calls[test.name]:
            _print_remote_call(asked, transcript.replies[test.name], min(len(recorded.values), len(asked) - 1))
        if not result.passed:
            _print_verdict(graded, recorded, test, result, transcript)
    for stream, name in enumerate(("stdout", "stderr")):
        if said := "".join(reply.printed[stream] for test in tests for reply in transcript.replies[test.name]):
            click.echo(f"{name} of the submission:\n{said}")


def _print_verdict(graded: GradedSuite, recorded: Replayer, test: Test, result: Result, transcript: Transcript) -> None:
    """Print what the student is told of a test that failed, whether it counts all the same, and what it costs."""
    ending = transcripts.name_carried((), test.name)
    name = next((each for each in reversed(transcript.carried) if each.endswith(ending)), "")
    if carried := transcript.carried.get(name):
        again = graded.run(test, recorded, name)
        ends = "passes, so it counts as passed" if again.passed else f"fails, too: {again.headline}"
        click.echo(f"With the right {' and '.join(carried)} in the place of the submission's own, it {ends}.")
        if again.passed:
            return
    elif name:
        click.echo(
            "It was asked again with earlier problems that fail answered right, and asked for none of them.\n"
            "If it repeats a mistake of theirs, that costs points twice: `staff adjust` gives them back."
        )
    for told in (each for each in transcript.explanations if test.name in each.tests):
        click.echo("\n".join(("The student is told:", *(f"  {line}" for line in told.lines))))
    if test.hidden:
        told = describe_for_student(result, recorded.submission, False)
        click.echo(f"Of the test, the student reads: {told.headline}")
    problem = graded.problems[test.problem]
    click.echo(f"It is worth {test.points:.3f} of the {problem.points:g} points of {problem.title}.")


def _print_remote_call(remote_calls: Sequence[RemoteCall], replies: Sequence[Reply], number: int) -> None:
    remote_call, reply = remote_calls[number], replies[number]
    try:
        arguments = remote_call.fill_in(transcripts.list_values(replies))
    except LookupError:  # the answer before it lacks what it is asked with
        return
    click.echo(f"{remote_call.call} was called with")
    positional = (f"argument {number}" for number in range(1, len(arguments) - len(remote_call.names) + 1))
    for name, argument in zip((*positional, *remote_call.names), arguments, strict=True):
        click.echo(f"  {name}: {_describe(argument)}")
    click.echo(f"answer: {_describe(None if reply.is_failed else reply.decoded)}")
    exact = [in_dtype(each, torch.float64) for each in arguments]
    with torch.no_grad():
        right = apply(reference_of(remote_call.call), exact, remote_call.names)
    click.echo(f"reference: {_describe(right)}")


def _describe(value: Any) -> str:
    return f"{tuple(value.shape)} {value.dtype}\n{value.detach()}" if isinstance(value, Tensor) else repr(value)
