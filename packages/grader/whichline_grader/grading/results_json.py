"""`results.json`: the report in Gradescope's format."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from whichline.engine.assignment import Problem
from whichline.engine.result import Result
from whichline_grader.grading.deductions import elide_numbers
from whichline_grader.grading.graded import Grading
from whichline_grader.grading.report import Report, make_printable


def make_results_json(report: Report) -> dict[str, Any]:
    """The report as Gradescope reads it: a box for each problem, and a hidden one once grades are published.

    Points have two digits; all digits are in `extra_data`.
    """
    grading, problems = report.grading, enumerate(report.problems.values(), start=1)
    explained = ("\n".join((f"{each.problem}:", *each.lines)) for each in grading.notes.explanations)
    account = "\n".join(f"{what}: {points}" for what, points in report.account)
    said = (account, *report.rule_breaks, *report.remarks, *explained, *report.printed)
    return {
        "score": round(min((each.points for each in report.grades), default=grading.points), 2),
        "output": "\n\n".join(filter(None, said)),
        "output_format": "text",
        "tests": [box for number, problem in problems for box in _fill_boxes(number, problem, grading)],
        "extra_data": {
            "submission": grading.submission,
            "points": grading.points,
            "maximum": grading.maximum,
            "grades": [
                {"student": own.student.key, "days_late": own.days_late, "penalty": own.penalty, "grade": own.points}
                for own in report.grades
            ],
            "content": grading.content,
            "suite": grading.suite,
            "sandbox": grading.layer,
            "started": grading.started.isoformat(),
        },
    }


def _fill_boxes(number: int, problem: Problem, grading: Grading) -> Iterator[dict[str, Any]]:
    """The boxes of the public and of the hidden tests of a problem; what it pays is taken from the first ones first."""
    paid = grading.rule_deductions.get(problem.id, {})
    owed = math.fsum(paid.values())
    for stage, hidden in enumerate((False, True), start=1):
        if results := [each for each in grading.list_results(problem.id) if each.hidden is hidden]:
            pays = min(owed, math.fsum(result.points for result in results)) if owed else 0.0
            owed -= pays
            why = [f"{pays:.2f} points lost for {' and '.join(paid)}: not your own work"] if pays else []
            yield _fill_box(f"{number}.{stage}", problem, results, pays, why)


def _fill_box(number: str, problem: Problem, results: Sequence[Result], pays: float, why: list[str]) -> dict[str, Any]:
    hidden, passed = results[0].hidden, [each for each in results if each.passed]
    failed = [each for each in results if not each.passed] if len(passed) < len(results) else []
    lost, earned = _list_lost(failed), math.fsum(each.maximum for each in passed) - pays
    text = [f"{len(passed)} of {len(results)} tests pass.", *why] if lost or why else []
    text += [f"{points:.2f} points lost in {function}" for function, points in lost.items()]
    for first, *others in _sort_kinds(failed):
        text += ["", f"{first.test}:", make_printable(first.text)]
        text += [f"The same, but for its numbers, in {', '.join(other.test for other in others)}."] if others else []
    return {
        "name": f"{problem.title}: {'hidden' if hidden else 'public'} tests",
        "number": number,
        "score": round(earned, 2),
        "max_score": round(math.fsum(result.maximum for result in results), 2),
        "status": "failed" if lost or why else "passed",
        "output": make_printable("\n".join(text).strip()),
        "output_format": "text",
        "visibility": "after_published" if hidden else "visible",
        "tags": [problem.id],
        "extra_data": {
            "hidden": hidden,
            "bonus": problem.bonus,
            "points": earned,
            "lost": lost,
            "outcomes": {result.test: result.outcome for result in results},
        },
    }


def _sort_kinds(failed: Iterable[Result]) -> Iterable[list[Result]]:
    """Put those together that fail alike but for their numbers."""
    kinds: dict[tuple[object, ...], list[Result]] = {}
    for each in failed:
        kinds.setdefault((each.check, elide_numbers(each.headline), each.place), []).append(each)
    return kinds.values()


def _list_lost(failed: Iterable[Result]) -> dict[str, float]:
    """The points that are lost in each test function that loses any, most first."""
    lost: dict[str, float] = {}
    for each in failed:
        lost[each.function] = lost.get(each.function, 0.0) + each.maximum
    return dict(sorted(lost.items(), key=lambda each: -each[1]))
