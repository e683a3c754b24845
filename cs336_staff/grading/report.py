"""What comes out of a grading: `results.json` in Gradescope's format, and feedback in Markdown."""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Result
from cs336_staff.grading.gradebook import Gradebook, Grading
from cs336_staff.sandbox.printable import printable

MAX_MESSAGE = 4_000


def write_reports(folder: Path, grading: Grading, problems: Mapping[str, Problem]) -> None:
    """Write `results.json` and `feedback.md` of one submission; a file is there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "results.json", json.dumps(results(grading, problems), indent=1))
    _write(folder / "feedback.md", feedback(grading, problems))


def write_all_reports(out: Path, gradebook: Gradebook, problems: Mapping[str, Problem]) -> None:
    """Write the reports of every submission again, with the present points."""
    for grading in gradebook.latest():
        write_reports(out / grading.submission, grading, problems)


def results(grading: Grading, problems: Mapping[str, Problem]) -> dict[str, Any]:
    """The report as Gradescope reads it; hidden tests are shown once grades are published."""
    numbers = {problem: i for i, problem in enumerate(problems, start=1)}
    tests = []
    for i, result in enumerate(grading.results, start=1):
        tests.append(
            {
                "name": f"{problems[result.problem].title}: {result.test}",
                "number": f"{numbers[result.problem]}.{i}",
                "score": round(result.points, 6),
                "max_score": round(result.maximum, 6),
                "status": "passed" if result.passed else "failed",
                "output": _shown(result.text),
                "output_format": "text",
                "visibility": "after_published" if result.hidden else "visible",
                "tags": [result.problem],
                "extra_data": {
                    "outcome": result.outcome,
                    "test": result.test,
                    "hidden": result.hidden,
                    "bonus": result.bonus,
                },
            }
        )
    return {
        "score": round(grading.points, 6),
        "max_score": round(grading.maximum, 6),
        "output": "\n\n".join((*_remarks(grading), *_explained(grading))),
        "output_format": "text",
        "tests": tests,
        "extra_data": {
            "submission": grading.submission,
            "content": grading.content,
            "suite": grading.suite,
            "sandbox": grading.layer,
            "started": grading.started.isoformat(),
        },
    }


def feedback(grading: Grading, problems: Mapping[str, Problem]) -> str:
    """What the student reads: the points, and for each test that did not pass, why."""
    lines = [f"# {_inline(grading.submission)}: {grading.points:.1f} of {grading.maximum:g} points", ""]
    for remark in _remarks(grading):
        lines += [*_fenced(remark), ""]
    lines += ["| Problem | Points | Tests passed |", "|---|---:|---:|"]
    for problem in problems.values():
        results = [result for result in grading.results if result.problem == problem.id]
        earned, passed = math.fsum(result.points for result in results), sum(result.passed for result in results)
        title = problem.title + " (bonus)" * problem.bonus
        lines.append(f"| {title} | {earned:.1f} / {problem.points:g} | {passed} / {len(results)} |")
    for problem in problems.values():
        failed = [result for result in grading.results if result.problem == problem.id and not result.passed]
        if failed:
            lines += ["", f"## {problem.title}"]
        for explanation in grading.notes.explanations:
            if explanation.problem == problem.id:
                lines += ["", *_fenced("\n".join(explanation.lines))]
        for message, results in _by_message(failed):
            tests = ", ".join(f"`{result.test}`{' (hidden)' * result.hidden}" for result in results)
            lines += ["", tests, "", *_fenced(message)]
    return "\n".join(lines) + "\n"


def safe_name(name: str) -> str:
    """A folder's name for what was handed in under `name`, with nothing in it that a shell or a browser takes amiss."""
    name = unicodedata.normalize("NFC", name.removesuffix(".zip"))
    letters = (c if c in "._-" or unicodedata.category(c)[0] in "LMN" else " " for c in name)  # of any script
    safe = re.sub(" +", "_", "".join(letters)).lstrip(".-")[:100].encode()[:200].decode(errors="ignore")
    if safe.endswith(".csv") or safe.startswith("gradebook.sqlite"):  # grading writes files of these names beside it
        safe += "_"
    return safe or "submission"


def _remarks(grading: Grading) -> Iterable[str]:
    """What concerns the submission as a whole."""
    notes = grading.notes
    if notes.refused:
        yield f"The submission was not run: {notes.refused}"
    for problem, calls in notes.forbidden.items():
        if problem in grading.overruled:
            yield f"{problem}: counted by staff: {grading.overruled[problem]}"
        else:
            yield f"{problem}: write this yourself, without:\n" + "\n".join(calls)
    if notes.missing:
        yield (
            f"Your code imports {', '.join(notes.missing)}: no such file is in what you handed in, and no such package "
            "where submissions are graded. That costs nothing as long as no graded function needs it."
        )
    yield from notes.taken_in
    for stream, text in (("stdout", notes.stdout), ("stderr", notes.stderr)):
        if text:
            yield f"Your code wrote to {stream} during the public tests:\n{text}"


def _explained(grading: Grading) -> Iterable[str]:
    for explanation in grading.notes.explanations:
        yield f"{explanation.problem}:\n" + "\n".join(explanation.lines)


def _by_message(results: Iterable[Result]) -> Iterable[tuple[str, list[Result]]]:
    """Results with the same message, together: one missing function fails every test."""
    together: dict[str, list[Result]] = {}
    for result in results:
        together.setdefault(_shown(result.text), []).append(result)
    return together.items()


def _shown(message: str) -> str:
    shown = printable(message)
    return shown if len(shown) <= MAX_MESSAGE else shown[:MAX_MESSAGE] + "\n(cut off)"


def _fenced(text: str) -> list[str]:
    """A code block that nothing in `text` can end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return [f"{fence}text", _shown(text), fence]


def _inline(text: str) -> str:
    return f"`{text}`"


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
