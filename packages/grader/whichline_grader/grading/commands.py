"""`staff grade` and `reproduce`. What imports torch is imported when it is needed."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import click
from rich import progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whichline.engine.assignment import Problem
from whichline.engine.errors import CourseworkError
from whichline_grader.grading.class_deductions import ClassDeduction
from whichline_grader.grading.course import RESULTS_FOLDER, find_checked_root, into, load_course, results_folder
from whichline_grader.grading.final_grades import find_grade, grades
from whichline_grader.grading.gradebook import Gradebook, GradebookError, Results, open_results
from whichline_grader.grading.graded import Grading, Score
from whichline_grader.grading.identity import Platform, find_uploads, make_safe_name
from whichline_grader.grading.processes import ANSWERS, load_and_start
from whichline_grader.grading.reports import MOST, cut_list, write_course
from whichline_grader.grading.writing import writing
from whichline_grader.hidden.release import describe_rehearsal, load_release
from whichline_grader.sandbox.confinement import Layer, Sandbox
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.reader import Reader

if TYPE_CHECKING:
    from whichline_grader.grading.batch import Progress

FAULTS = 3  # the exit status when something of ours went wrong
INTERRUPTED = 130  # by Ctrl-C, as shells have it
COSTLIEST = 10  # findings that are printed; the file has all
ANSWERS_OPTION = "--answers"
LINES = 20  # of progress, where there is no terminal
FOLDERS = click.Path(exists=True, file_okay=False, path_type=Path)
SANDBOXES = click.Choice(["auto", "bubblewrap", "process", "none"])


class SeveralAnswers(click.Command):
    """After --answers all words are folders, as a shell writes out a pattern, up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        begin = args.index(ANSWERS_OPTION) + 2 if ANSWERS_OPTION in args else len(args)
        end = next((at for at in range(begin, len(args)) if args[at].startswith("-")), len(args))
        more = [word for folder in args[begin:end] for word in (ANSWERS_OPTION, folder)]
        return super().parse_args(ctx, [*args[:begin], *more, *args[end:]])


@click.command(cls=SeveralAnswers)
@click.argument("submission", nargs=-1, required=True, type=click.Path(exists=True, readable=False, path_type=Path))
@into
@click.option("--sandbox", "layer", type=SANDBOXES, default="auto")
@click.option("--jobs", type=click.IntRange(1), help="How many at the same time.  [default: one for each core]")
@click.option("--rerun", is_flag=True, help="Grade again what has already been graded.")
@click.option(ANSWERS_OPTION, multiple=True, type=FOLDERS, help="Run nothing: judge by answers from other machines.")
@click.option("-v", "--verbose", is_flag=True, help="Print on stderr what log.jsonl gets: a line for each submission.")
def grade(
    submission: tuple[Path, ...],
    out: Path,
    layer: Layer,
    jobs: int | None,
    rerun: bool,
    answers: tuple[Path, ...],
    verbose: bool,
) -> None:
    """Grade each SUBMISSION, a folder, a zip or tar archive or a Python file, in a sandbox.

    Run the same command again after an interruption: nothing is graded twice. Two submissions of one student
    are an error: grade attempts one after another. Deadline, late days and lists of students are in
    staff/course.toml. With --answers part-*/answers, folders that other machines wrote beside their gradebooks, all
    submissions are judged together and none is run. The exit status is 3 if a submission could not be graded and the
    fault is not its own.
    """
    _need_linux()
    console = Console()
    root = find_checked_root()
    course = load_course(root)
    load_release()  # before anything is started: the secret may be missing
    try:
        with load_and_start(root, None if answers else layer) as (suite, sandbox):
            from whichline_grader.grading.batch import How
            from whichline_grader.grading.batch import grade as grade_all

            if not suite.release.folder:
                console.print(Text(describe_rehearsal(), "bold red"))
            console.print(*([Text("No submission runs")] if answers else _list_layer(sandbox)), sep="\n")
            if sandbox.achieved.leaves_marks:
                _refuse_several(submission, course.platform)
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, of a scheduler such as SLURM
            with show_progress(console) as show:
                tell = partial(click.echo, err=True) if verbose else How.tell
                how = How(jobs or os.cpu_count() or 1, rerun, answers, show, tell)
                done = grade_all(suite, sandbox, submission, out, how)
        with writing(out), Gradebook(out / "gradebook.sqlite", course.muted) as gradebook:
            _write_and_print(console, Results(out, gradebook, course, suite.problems), done)
        console.print(Text(f"Reports, gradebook and grades are in {out}"))
    except OSError as error:
        intact = f"the results in {out} are intact: run the same command to continue"
        raise click.ClickException(f"{error}; {intact}") from None
    except KeyboardInterrupt:
        with suppress(GradebookError), open_results(out) as results:  # it may be empty yet
            write_course(console, results)
        so_far = f"What is graded so far is in {out}: run the same command to continue."
        console.print(Text(f"Interrupted. {so_far}", "yellow"))
        sys.exit(INTERRUPTED)
    sys.exit(FAULTS if done.faults or done.unreported else 0)


def _write_and_print(console: Console, results: Results, done: "Progress") -> None:
    if graded := [each for each in results.gradebook.latest(texts=False) if each.submission in done.names]:
        console.print(draw_board(graded, results.problems))
    for line in cut_list(list(list_remarks(graded)), MOST, "`staff report` lists them"):
        console.print(Text(line, "yellow"))
    for name, reason in done.faults.items():
        console.print(Text(f"NOT GRADED, and not because of the submission: {name}: {reason}", "red"))
    students, found = write_course(console, results)
    if found and len(students) > 1:
        console.print(draw_findings(found))


@click.command()
@click.argument("submission")
@click.argument("test")
@click.option("--sandbox", "layer", type=SANDBOXES, default="auto")
@click.option("--out", type=click.Path(path_type=Path), default=results_folder, show_default=RESULTS_FOLDER)
def reproduce(submission: str, test: str, layer: Layer, out: Path) -> None:
    """Run one TEST on what one SUBMISSION answered: print inputs, answer, reference, and what its student is told.

    Without a record of its answers to these questions in OUT, it is asked again.

    SUBMISSION is a file or folder, or a student by name or number. TEST is a name of results.json, such as
    test_softmax[1d], or a test function with all its cases.
    """
    _need_linux()
    root = find_checked_root()
    path = _find_handed_in(submission, out)
    beside = find_uploads(path.parent.iterdir(), load_course(root).platform)
    with Reader() as reader:
        taken_in = reader.take_in(path, next((work.files for work in beside if work.path == path), {}))
    if (record := out / ANSWERS / (content := taken_in.sha256)).exists():
        from whichline_grader.grading.one_submission import find_tests, reproduce_tests
        from whichline_grader.grading.suite import load_graded_suite
        from whichline_grader.grading.transcripts import read_transcript

        suite = load_graded_suite(root)
        if transcript := read_transcript(record.read_bytes(), suite.remote_calls, suite.compute_provenance(content)):
            reproduce_tests(suite, taken_in, find_tests(suite, test), transcript)
            return
    with load_and_start(root, layer, test) as (suite, sandbox):
        from whichline_grader.grading.one_submission import ask_again, find_tests, reproduce_tests

        tests = find_tests(suite, test)
        reproduce_tests(suite, taken_in, tests, ask_again(suite, sandbox, taken_in, tests))


def _find_handed_in(said: str, out: Path) -> Path:
    """The file or folder of this name, or else what the student handed in whom it means."""
    if not (path := Path(said).resolve()).exists():
        try:
            with open_results(out) as results:
                path = Path(find_grade(grades(results.gradebook, results.course), said).grading.path)
        except CourseworkError as error:
            raise click.ClickException(f"there is no file {said}, and no student of that name: {error}") from None
        if not path.exists():
            raise click.ClickException(f"{path} is no longer there; put it back, or name the file where it is now")
    return path


def _list_layer(sandbox: Sandbox) -> list[Text]:
    achieved = sandbox.achieved
    first = f"Sandbox: {achieved.layer} ({', '.join(achieved.parts) or 'nothing'})"
    return [Text(first), *(Text(f"  {note}", "yellow") for note in achieved.notes)]


def _refuse_several(paths: Iterable[Path], platform: Platform) -> None:
    """Refuse more than one submission where a later one can read marks of an earlier one."""
    if (count := len(find_uploads(paths, platform))) > 1:
        raise click.ClickException(
            f"{count} submissions would see marks of each other: allow user namespaces, or grade each in a container "
            f"of its own, and judge them together with {ANSWERS_OPTION}"
        )


def _need_linux() -> None:
    if sys.platform != "linux":
        why = "the sandbox and the limits are its kernel's, those of --sandbox none too"
        raise click.ClickException(f"grading needs Linux: {why}. Use a Linux machine, or WSL on Windows")


@contextmanager
def show_progress(console: Console) -> Iterator[Callable[["Progress"], None]]:
    """A bar with submissions done and running, and the time left; where there is no terminal, at most `LINES` lines."""
    if not console.is_terminal:
        printed = 0

        def print_line(now: "Progress") -> None:
            nonlocal printed
            if now.done * LINES // max(1, now.total) > printed:
                printed = now.done * LINES // now.total
                console.print(Text(_describe(now)))

        yield print_line
        return
    # Drawn when something changes: a thread that draws must not be there when a submission's process is forked.
    columns = (progress.BarColumn(), progress.TextColumn("{task.fields[state]}"), progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task("", total=None, state="")
        yield lambda now: bar.update(task, total=now.total, completed=now.done, state=_describe(now), refresh=True)


def _describe(now: "Progress") -> str:
    faults = f", {len(now.faults)} not graded" if now.faults else ""
    return f"{now.done} of {now.total} done, {now.running} running, {now.below} below full points{faults}"


def draw_board(gradings: Sequence[Grading], problems: Mapping[str, Problem]) -> Table:
    """The points of one submission, or of several on average; grades.csv has those of each."""
    of = f"{len(gradings)} submissions, points on average" if len(gradings) > 1 else gradings[0].submission
    table = Table(title=Text(f"{of}, public and hidden tests"), show_footer=True)
    table.add_column("Problem", "Total")
    mean, most = fmean(grading.points for grading in gradings), max(grading.maximum for grading in gradings)
    scores = [score for grading in gradings for score in grading.scores.values()]
    table.add_column("Tests passed", _count_passed(scores), justify="right")
    table.add_column("Points", f"{mean:.2f}/{most:g}", justify="right")
    for problem in problems.values():
        own = [grading.scores[problem.id] for grading in gradings if problem.id in grading.scores]
        mean = fmean(grading.compute_points(problem.id) for grading in gradings)
        colour = "green" if all(each.passed == each.tests for each in own) else "red"
        points = Text(f"{mean:.2f}/{problem.points:g}", colour)
        table.add_row(problem.id + " (bonus)" * problem.bonus, _count_passed(own), points)
    return table


def _count_passed(scores: Sequence[Score]) -> str:
    return f"{sum(each.passed for each in scores)}/{sum(each.tests for each in scores)}"


def list_remarks(gradings: Iterable[Grading]) -> Iterator[str]:
    """List what staff should look at: new names, what the rules forbid or the source could hide, what staff decided."""
    for grading in gradings:
        name, notes = grading.submission, grading.notes
        if name != make_safe_name(Path(grading.path).name):
            yield f"{printable(grading.path)} is reported as {name}"
        if notes.refused:
            yield f"REFUSED, not run, no points: {name}: {notes.refused}"
        for problem, lines in grading.violations.items():
            if problem not in grading.waived:
                yield f"VIOLATION: {name}, {problem}: {'; '.join(lines)}"
        yield from (f"to look at: {name}: {each}" for each in notes.doubts)
        yield from (f"decided: {name}: {each}" for each in grading.decisions)
        yield from (f"remark: {name}: {each}" for each in notes.taken_in)


def draw_findings(found: Sequence[ClassDeduction]) -> Table:
    shown = found[:COSTLIEST]
    caption = f"{len(shown)} of {len(found)}; the others are in findings.csv" if len(found) > len(shown) else None
    table = Table("Points lost", "Submissions", "What", title="What costs the class most", caption=caption)
    for each in shown:
        table.add_row(f"{each.deduction.points:.1f}", str(len(each.entries)), Text(printable(each.says)))
    return table
