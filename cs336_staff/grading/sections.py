"""Sort what a student is told by problem: what fails, in kinds, and why."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check, Explanation, Result
from cs336_staff.grading.blocks import MAX_BLOCK, MAX_DUMP, cut_block
from cs336_staff.grading.grading import Grading

# The same in every test that it ends: its headline says where, or there is no example of it.
MANY_TESTS = (Check.CALL, Check.NOT_WRITTEN)


@dataclass(frozen=True)
class Kind:
    """Tests that fail in the same way; `told` if a finding or an earlier problem has said why."""

    results: Sequence[Result]
    told: bool

    @property
    def headline(self) -> str:
        first = self.results[0]
        place = _place(first.details) if first.check is Check.CALL else ""
        return first.headline.rstrip(":") + f", at {place}" * bool(place)

    @cached_property
    def names(self) -> str:
        """The tests; none where nothing is written, and so all of them fail."""
        return "" if self.results[0].check is Check.NOT_WRITTEN else names_of(self.results)

    @cached_property
    def example(self) -> list[str]:
        """The numbers or the lines of the first test, if the headline does not say all."""
        first = self.results[0]
        if self.told or first.check is Check.NOT_WRITTEN or first.text == first.headline:
            return []
        most = MAX_BLOCK if first.check is Check.CALL else MAX_DUMP
        return [f"{first.test}:", *cut_block(first.text.partition("\n")[2], most)]


@dataclass(frozen=True)
class Section:
    """All that a student is told about one problem.

    Args:
        problem: the problem.
        points: what its tests earned, less what it pays for works that are not the student's own, and staff adjusted.
        results: of its tests.
        explanations: what the examination found, without what is told of an earlier problem.
        kinds: what fails; nothing where all pass, and for a bonus problem that is not written.
    """

    problem: Problem
    points: float
    results: Sequence[Result]
    explanations: Sequence[Explanation]
    kinds: Sequence[Kind]

    @property
    def title(self) -> str:
        return self.problem.title + " (bonus)" * self.problem.bonus

    @property
    def state(self) -> str:
        if is_unwritten(self.results):
            return "not written"
        return f"{sum(result.passed for result in self.results)} / {len(self.results)}"


def sections(grading: Grading, problems: Mapping[str, Problem]) -> Iterator[Section]:
    """Tell for each problem what fails and why. An exception is told once, however many problems it breaks."""
    told: set[tuple[str, str]] = set()  # the exceptions of the problems before, and where each was raised
    for problem in problems.values():
        results = grading.results_of(problem.id)
        passed = all(result.passed for result in results)
        if passed or grading.notes.refused or (is_unwritten(results) and problem.bonus):
            yield Section(problem, grading.points_of(problem.id), results, (), ())
            continue
        explanations = [each for each in grading.notes.explanations if each.problem == problem.id]
        new = [each for each in explanations if error_of(each) not in told]
        told.update(error for each in explanations if (error := error_of(each)))
        kinds = []
        for kind in sort_kinds(results):
            error = kind[0].headline, _place(kind[0].details)
            kinds.append(Kind(kind, error in told))
            if kind[0].check is Check.CALL:
                told.add(error)
        yield Section(problem, grading.points_of(problem.id), results, new, kinds)


def error_of(explanation: Explanation) -> tuple[str, str] | None:
    """The exception that the student's code raised and where it did, if that is what was found."""
    found, place = re.search("`(.*)`", explanation.lines[0], re.DOTALL), _place(explanation.lines)
    return (found[1], place) if found and place else None


def _place(lines: Iterable[str]) -> str:
    """The innermost line of the student's that an exception went through, by file and number."""
    places = [match[1] for line in lines if (match := re.match(r' *(.+:\d+), in |( *File ".+", line \d+)', line))]
    return places[-1] if places else ""


def remarks(grading: Grading) -> Iterable[str]:
    """Say what concerns the submission as a whole."""
    notes = grading.notes
    if notes.refused:
        yield f"The submission was not run: {notes.refused}"
    for problem, lines in grading.violations.items():
        if problem not in grading.overruled:
            paid = grading.charges[problem]
            cost = f"{-math.fsum(paid.values()):.2f} points for {' and '.join(paid)}"
            yield f"{problem}: {cost}. Write this yourself, without:\n" + "\n".join(lines)
    yield from grading.decisions
    if notes.missing:
        yield (
            f"Your code imports {', '.join(notes.missing)}: no such file is in what you handed in, and no such package "
            "where submissions are graded. That costs nothing as long as no graded function needs it."
        )
    yield from notes.taken_in


def printed(grading: Grading) -> Iterable[str]:
    """Give what the submission has written to its streams, each under a line that says so."""
    for stream, text in (("stdout", grading.notes.stdout), ("stderr", grading.notes.stderr)):
        if text:
            yield f"Your code wrote to {stream} during the public tests:\n{text}"


def is_unwritten(results: Iterable[Result]) -> bool:
    return all(result.check is Check.NOT_WRITTEN for result in results)


def sort_kinds(results: Iterable[Result]) -> list[list[Result]]:
    """Those that did not pass, together where the same was looked at in the cases of one test function."""
    together: dict[tuple[object, ...], list[Result]] = {}
    for cases in by_function(result for result in results if not result.passed).values():
        for check in dict.fromkeys(case.check for case in cases):
            kind = [case for case in cases if case.check is check]
            same = (kind[0].headline, _place(kind[0].details)) if check in MANY_TESTS else (kind[0].function,)
            together.setdefault((check, *same), []).extend(kind)
    unwritten = [kind for kind in together.values() if kind[0].check is Check.NOT_WRITTEN]
    if all(kind[0].hidden for kind in unwritten):
        return [*together.values()]
    # Of what is not written, the public tests say what to write.
    return [kind for kind in together.values() if not (kind in unwritten and kind[0].hidden)]


def lose(results: Iterable[Result]) -> dict[str, float]:
    """The points that are lost in each test function that loses any, most first."""
    functions = by_function(result for result in results if not result.passed)
    lost = {function: math.fsum(case.maximum for case in cases) for function, cases in functions.items()}
    return dict(sorted(lost.items(), key=lambda each: -each[1]))


def names_of(results: Iterable[Result]) -> str:
    """The tests, those of one function together, hidden ones last."""
    names: dict[bool, list[str]] = {False: [], True: []}
    for function, cases in by_function(results).items():
        names[cases[0].hidden].append(f"{len(cases)} of `{function}`" if cases[1:] else f"`{cases[0].test}`")
    public, hidden = ", ".join(names[False]), ", ".join(names[True])
    return "; ".join(filter(None, (public, hidden and f"hidden: {hidden}")))


def by_function(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The cases of each test function."""
    functions: dict[str, list[Result]] = {}
    for result in results:
        functions.setdefault(result.function, []).append(result)
    return functions
