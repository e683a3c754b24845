"""`staff verify`: prove that the suites are good enough to ship; with `--write`, write the cases.

They are if cases and steps are right, right programs pass in every style, and the solution gets all points when it is
graded.
"""

import gc
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import click
import torch
from rich.console import Console

from whichline.engine.assignment import PROBLEMS, find_problem, load_problems
from whichline.engine.case import list_case_names, load_case
from whichline.engine.compare import name_dtype, same
from whichline.engine.errors import CourseworkError
from whichline.engine.problem_folder import list_adapters
from whichline.engine.result import Result
from whichline.engine.suite import Suite
from whichline.locate.reference import Reference, load_references
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.authoring.programs import PROGRAMS, RIGHT_STYLES, WRITTEN
from whichline_grader.authoring.spec import Adapter, load_specs
from whichline_grader.authoring.stored_cases import check_fixtures, public_seed, write_fixtures
from whichline_grader.grading.course import find_checked_root
from whichline_grader.grading.processes import load_and_start
from whichline_grader.grading.suite import load_both_suites
from whichline_grader.hidden.release import describe_rehearsal, load_release
from whichline_grader.paths import HIDDEN_TESTS, STAFF, find_hidden_tests
from whichline_grader.release.broken import describe_outcomes, list_solution_mistakes, try_in_tree
from whichline_grader.release.handout import make_handout
from whichline_grader.release.stages import Stage, Stages, count
from whichline_grader.sandbox.interview import Starved
from whichline_grader.sandbox.submission import take_in

EXACT = 1e-12  # of the largest number: both are computed in float64


@dataclass(frozen=True)
class StoredCases:
    """The stored cases of one suite: their folder, what they are made from, and the `only` ones to look at, if any."""

    suite: str
    folder: Path
    specs: Sequence[CaseSpec]
    seed_of: Callable[[str], int]
    only: Collection[str]

    def check(self) -> list[str]:
        """Recompute them; say what is not what the references give, one line each."""
        return list(check_fixtures(self.folder, self.specs, self.seed_of, self.only))

    def compare(self, stage: Stage) -> None:
        stage.error(*self.check())

    def write(self) -> None:
        total = len(self.only or self.specs)
        with click.progressbar(length=total, label=f"{self.suite} cases") as bar:
            written = write_fixtures(self.folder, self.specs, self.seed_of, lambda name: bar.update(1), self.only)
        click.echo(f"{written} of {total} {self.suite} cases written, in {self.folder}; the others are right")


def stored_cases(root: Path, problem: str | None = None) -> Iterator[StoredCases]:
    """The public and the hidden ones, of one problem or of all."""
    release, specs = load_release(), load_specs()
    for suite, folder, seed_of in (("public", root / "fixtures", public_seed), ("hidden", release.cases, release.seed)):
        cases = {id: getattr(spec, suite) for id, spec in specs.items()}
        only = [case.name for case in cases[problem]] if problem else []
        if only or not problem:
            yield StoredCases(suite, folder, [*chain.from_iterable(cases.values())], seed_of, only)


@click.command()
@click.argument("problem", required=False)
@click.option("--break", "breaks", default=0, help="Make so many mistakes in the solution, and say which are found.")
@click.option("--seed", default=0, help="Another one draws other mistakes.")
@click.option("--write", is_flag=True, help="Write the stored cases that are missing or wrong, and test nothing.")
def verify(problem: str | None, breaks: int, seed: int, write: bool) -> None:
    """Test the suites: fixtures, right styles, references, and the solution, graded in the sandbox.

    With the id of a PROBLEM, that one alone. The first error is printed at once, and all of them at the end. The exit
    status is then 1. With --break it says, too, for which mistakes in the solution their line is told.

    The hidden cases are those of the course, in its folder; without one they are those of the rehearsal. Public cases
    are the same in every course.
    """
    torch.set_num_threads(1)  # the cases are small: threads cost more than they give
    root = find_checked_root()
    problems = load_problems(root)
    if problem:
        problems = {problem: find_problem(problems, problem)}
    if write:
        if load_release().folder is None:
            click.secho(describe_rehearsal(), fg="yellow", err=True)
        for stored in stored_cases(root, problem):
            stored.write()
        return
    stages = Stages(Console())
    for stored in stored_cases(root, problem):
        stages.run(f"The {stored.suite} cases are what the references give", stored.compare)
    suite = stages.run("Both suites load", lambda stage: load_solved_suite(root, problem))
    gc.freeze()  # what there is now is looked through in no fork
    if suite:
        check = partial(check_right_style, suite)
        stages.run("Right programs pass both suites", lambda stage: stage.check(check, [*RIGHT_STYLES]))
    title = "What the references compute is float64, and ends in the answers"
    stages.run(title, partial(verify_references, root, problems))
    title = "A second opinion agrees with each reference"
    stages.run(title, lambda stage: stage.check(partial(check_second_opinion, root), [*problems]))
    if sys.platform == "linux":
        stages.run("The solution gets all points in the sandbox", partial(grade_solution, root, problems))
    else:
        click.secho("The solution was not graded: that needs Linux.", fg="yellow")
    if not problem:
        stages.run("A handout can be made, without solutions", partial(verify_handout, root))
    if breaks and suite:
        mistakes = list_solution_mistakes(root, problems, seed, breaks)
        whole = load_solved_suite(root)  # a file may be written for several problems
        public = replace(whole, tests=[test for test in whole.tests if not test.hidden])
        title = "The solution is broken, one token at a time"
        outcomes = stages.run(title, lambda stage: [*stage.map(partial(try_in_tree, public), mistakes)])
        for line in describe_outcomes([*zip(mistakes, outcomes or (), strict=False)]):
            click.echo(f"   {line}")
    if stages.errors:
        raise click.ClickException("\n".join((f"{count(stages.errors)} in all:", *stages.errors)))
    click.echo("\nNo errors")


def grade_solution(root: Path, problems: Collection[str], stage: Stage) -> None:
    """The solution of the assignment must get all points of some problems."""
    try:
        with load_and_start(root) as (suite, sandbox):
            from whichline_grader.grading.one_submission import grade_one

            results, notes, _ = grade_one(suite, sandbox, take_in(root))
    except (CourseworkError, Starved) as error:
        stage.error(str(error))
        return
    for failed in describe_failed([each for each in results if each.problem in problems]):
        stage.error(f"the solution fails {failed}")
    for problem in notes.forbidden.keys() & problems:
        lines = [line for work in notes.forbidden[problem].values() for line in work]
        stage.error(f"the solution of {problem} uses what is forbidden: {'; '.join(lines)}")


def load_solved_suite(root: Path, problem: str | None = None) -> Suite:
    """The public and the hidden suite, or a problem of them, to be run in this process on adapters that staff wrote."""
    suite = replace(load_both_suites(root), remote=False)
    if problem is None:
        return suite
    tests = [test for test in suite.tests if test.problem == problem]
    return replace(suite, problems={problem: suite.problems[problem]}, tests=tests)


def run_suite(suite: Suite, adapters: Mapping[str, Adapter]) -> list[Result]:
    """The results of a submission that has these adapters, which are every `run_*` function."""
    suite.calls.adapters = SimpleNamespace(**adapters)
    torch.manual_seed(0)  # for those that draw random numbers, by mistake
    return [suite.run(test) for test in suite.tests]


def check_right_style(suite: Suite, style: str) -> Iterator[str]:
    for failed in describe_failed(run_suite(suite, RIGHT_STYLES[style])):
        yield f"{style} is right and fails {failed}"


def describe_failed(results: Sequence[Result]) -> Iterator[str]:
    """Say in a line for each problem which tests fail: a reference that is wrong fails nearly all of them."""
    for problem in dict.fromkeys(each.problem for each in results if not each.passed):
        ran = [each for each in results if each.problem == problem]
        first, *more = [each for each in ran if not each.passed]
        others = f" ({len(more) + 1} of {len(ran)} tests of {problem} fail; is its reference right?)" if more else ""
        yield f"{first.test}: {first.headline}{others}"


def verify_handout(root: Path, stage: Stage) -> None:
    try:
        make_handout(root, version="0")
    except CourseworkError as error:
        stage.error(*str(error).splitlines())


def check_second_opinion(root: Path, problem: str) -> Iterator[str]:
    """Something else than the reference must say what is right: a right program, or a test of a property."""
    written = {call for program in WRITTEN.values() for call in program}
    if re.search(r"^def test_", find_hidden_tests(root, problem).read_text(encoding="utf-8"), re.M):
        return
    for call in (call for call in list_adapters(problem) if call not in written):
        yield (
            f"nothing but its reference says what is right for {call}: write it in another way, or with torch's own "
            f"function, in {STAFF}/{PROGRAMS}/NAME.py, or test a property in {PROBLEMS}/{problem}/{HIDDEN_TESTS}"
        )


def verify_references(root: Path, problems: Collection[str], stage: Stage) -> None:
    """What each reference computes for the public cases must be fit to hold a student's values against."""
    names = list_case_names(root / "fixtures", "**/*")
    references = {adapter: each for problem in problems for adapter, each in load_references(problem).items()}
    texts = (path.read_text(encoding="utf-8") for path in root.glob("docs/*.md"))
    headings = [line.lstrip("# ") for text in texts for line in text.splitlines() if line.startswith("#")]
    stage.check(partial(check_reference, root / "fixtures", references, headings), names)


def check_reference(fixtures: Path, references: dict[str, Reference], headings: list[str], name: str) -> Iterator[str]:
    """What is observed on a stored case must be float64, end in the answer, and have its sections in the handout."""
    if (case := load_case(fixtures, name)).call not in references:
        return
    taken = references[case.call].compute_checkpoints(case.inputs).taken.values()
    for section in {step.section for step in taken if step.section}:
        if not any(re.match(rf"{re.escape(section)}\b", heading) for heading in headings):
            yield f"the reference of {case.call} names the section {section}, and no heading in docs/ begins with that"
    for step in taken:
        if step.value.tensor.is_floating_point() and step.value.tensor.dtype != torch.float64:
            got = name_dtype(step.value.tensor.dtype)
            yield f"the reference of {case.call} computes {step.name} in {got}, expected float64"
    if "answer" in case.expected:
        *_, last = taken
        if not same(last.value.tensor, case.expected["answer"], within=EXACT).all():
            yield f"the last value that the reference of {case.call} names is {last.name}, not the answer"
