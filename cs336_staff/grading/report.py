"""The reports of a grading: `results.json` in Gradescope's format, and feedback in Markdown."""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check, Explanation, Outcome, Result
from cs336_staff.grading.feedback import sentence
from cs336_staff.grading.gradebook import Gradebook, Grading
from cs336_staff.sandbox.printable import printable

MAX_MESSAGE = 4_000
# Of feedback.md, of one block in it, and of a line of code: students read what they can take in.
MAX_LINES, MAX_BLOCK, MAX_LINE = 100, 24, 200

# Lines of feedback: in full, and where there is no room for that.
Block = tuple[list[str], list[str]]


def write_reports(folder: Path, grading: Grading, problems: Mapping[str, Problem]) -> None:
    """Write `results.json` and `feedback.md` of one submission; a file is there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "results.json", json.dumps(results(grading, problems), indent=1))
    write_whole(folder / "feedback.md", feedback(grading, problems))


def write_all_reports(out: Path, gradebook: Gradebook, problems: Mapping[str, Problem]) -> None:
    """Write the reports of every submission again, with the present points."""
    for grading in gradebook.latest():
        write_reports(out / grading.submission, grading, problems)


def results(grading: Grading, problems: Mapping[str, Problem]) -> dict[str, Any]:
    """The report as Gradescope reads it: a box for each test function, a hidden one once grades are published."""
    numbers = {problem: i for i, problem in enumerate(problems, start=1)}
    functions: dict[tuple[str, str], list[Result]] = {}
    for result in grading.results:
        functions.setdefault((result.problem, result.function), []).append(result)
    tests = [
        {
            "name": f"{problems[problem].title}: {function}",
            "number": f"{numbers[problem]}.{i}",
            "score": round(math.fsum(case.points for case in cases), 6),
            "max_score": round(math.fsum(case.maximum for case in cases), 6),
            "status": "passed" if all(case.passed for case in cases) else "failed",
            "output": _output(cases),
            "output_format": "text",
            "visibility": "after_published" if cases[0].hidden else "visible",
            "tags": [problem],
            "extra_data": {
                "hidden": cases[0].hidden,
                "bonus": cases[0].bonus,
                "outcomes": {case.test: case.outcome for case in cases},
            },
        }
        for i, ((problem, function), cases) in enumerate(functions.items(), start=1)
    ]
    return {
        "score": round(grading.points, 6),
        "output": "\n\n".join((*remarks(grading), *_explained(grading))),
        "output_format": "text",
        "tests": tests,
        "extra_data": {
            "submission": grading.submission,
            "maximum": round(grading.maximum, 6),
            "content": grading.content,
            "suite": grading.suite,
            "sandbox": grading.layer,
            "started": grading.started.isoformat(),
        },
    }


@dataclass(frozen=True)
class Kind:
    """Tests that fail in the same way; `told` if something before has said why."""

    results: Sequence[Result]
    told: bool


@dataclass(frozen=True)
class Section:
    """All that a student is told about one problem.

    Args:
        problem: the problem.
        points: what its tests earned and staff adjusted.
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
        if _unwritten(self.results):
            return "not written"
        return f"{sum(result.passed for result in self.results)} / {len(self.results)}"


def sections(grading: Grading, problems: Mapping[str, Problem]) -> Iterator[Section]:
    """Tell for each problem what fails and why: each reason once, however many problems it breaks."""
    told = ""
    for problem in problems.values():
        results = [result for result in grading.results if result.problem == problem.id]
        if all(result.passed for result in results) or (_unwritten(results) and problem.bonus):
            yield Section(problem, grading.points_of(problem.id), results, (), ())
            continue
        kinds = _kinds(results)
        raised = [kind[0].headline for kind in kinds if kind[0].check is Check.CALL]
        explanations = []
        for explanation in grading.notes.explanations:
            if explanation.problem == problem.id and not any(h in told and h in explanation.lines[0] for h in raised):
                explanations.append(explanation)
                told += explanation.lines[0]
        failing = []
        for kind in kinds:
            failing.append(Kind(kind, kind[0].headline in told))
            told += kind[0].headline
        yield Section(problem, grading.points_of(problem.id), results, explanations, failing)


def feedback(grading: Grading, problems: Mapping[str, Problem]) -> str:
    """Write what the student reads, in at most `MAX_LINES` lines: points, findings, and each kind of failure once."""
    head = [f"# {_code(grading.submission)}: {grading.points:.1f} of {grading.maximum:g} points", ""]
    head += ["| Problem | Points | Tests passed |", "|---|---:|---:|"]
    blocks: list[Block] = [_told(remark) for remark in remarks(grading)]
    for section in sections(grading, problems):
        head.append(f"| {section.title} | {section.points:.1f} / {section.problem.points:g} | {section.state} |")
        if section.kinds:
            title = ["", f"## {section.problem.title}"]
            blocks.append((title, title))
        blocks += [_told("\n".join(explanation.lines)) for explanation in section.explanations]
        blocks += [_one_for_all(kind) for kind in section.kinds]
    return "\n".join(_fitted([(head, head), *blocks])) + "\n"


def safe_name(name: str) -> str:
    """A folder's name for what was handed in under `name`, with nothing in it that a shell or a browser takes amiss."""
    name = unicodedata.normalize("NFC", name.removesuffix(".zip"))
    letters = (c if c in "._-" or unicodedata.category(c)[0] in "LMN" else " " for c in name)  # of any script
    safe = re.sub(" +", "_", "".join(letters)).lstrip(".-")[:100].encode()[:200].decode(errors="ignore")
    # Files and a folder that are written beside it.
    if safe.endswith((".csv", ".html")) or safe.startswith("gradebook.sqlite") or safe == "students":
        safe += "_"
    return safe or "submission"


def remarks(grading: Grading) -> Iterable[str]:
    """Say what concerns the submission as a whole."""
    notes = grading.notes
    if notes.refused:
        yield f"The submission was not run: {notes.refused}"
    for problem, calls in notes.forbidden.items():
        if problem in grading.overruled:
            yield f"{problem}: counted by staff: {grading.overruled[problem]}"
        else:
            yield f"{problem}: write this yourself, without:\n" + "\n".join(calls)
    for problem, adjusted in grading.adjusted.items():
        yield f"{problem}: {adjusted.points:+g} points by staff: {adjusted.because}"
    if notes.missing:
        yield (
            f"Your code imports {', '.join(notes.missing)}: no such file is in what you handed in, and no such package "
            "where submissions are graded. That costs nothing as long as no graded function needs it."
        )
    yield from notes.taken_in
    for stream, text in (("stdout", notes.stdout), ("stderr", notes.stderr)):
        if text:
            yield f"Your code wrote to {stream} during the public tests:\n{text}"


def _unwritten(results: Iterable[Result]) -> bool:
    return all(result.check is Check.NOT_WRITTEN for result in results)


def _explained(grading: Grading) -> Iterable[str]:
    for explanation in grading.notes.explanations:
        yield f"{explanation.problem}:\n" + "\n".join(explanation.lines)


def _kinds(results: Iterable[Result]) -> list[list[Result]]:
    """Those that did not pass, together where they fail in the same way: one mistake fails many tests."""
    together: dict[tuple[Check | None, Outcome, str], list[Result]] = {}
    for result in results:
        if not result.passed:
            together.setdefault(_kind(result), []).append(result)
    public = any(key[0] is Check.NOT_WRITTEN and not kind[0].hidden for key, kind in together.items())
    # Of what is not written, the public tests say what to write.
    return [
        kind for kind in together.values() if not (public and kind[0].check is Check.NOT_WRITTEN and kind[0].hidden)
    ]


def _kind(result: Result) -> tuple[Check | None, Outcome, str]:
    """The same for a public and a hidden failure of one kind: what was looked at, and the headline without numbers."""
    if result.check is Check.NOT_WRITTEN:
        return result.check, result.outcome, result.headline
    return result.check, result.outcome, re.split(r": | in |[\d(\[]", sentence(result.headline))[0]


def _output(cases: Sequence[Result]) -> str:
    """The text in the box of one test function."""
    kinds = _kinds(cases)
    lines = [f"{sum(case.passed for case in cases)} of {len(cases)} cases pass."] if kinds and len(cases) > 1 else []
    for first, *others in kinds:
        lines += ["", f"{first.test}:", shown(first.text)]
        lines += [f"The same in {', '.join(other.test for other in others)}."] if others else []
    return shown("\n".join(lines).strip())


def _one_for_all(kind: Kind) -> Block:
    """One example in full and the names of the others, or a line if it was told or there is no more to tell."""
    first, *others = kind.results
    headline = _code(first.headline.rstrip(":"))
    count = f"{len(kind.results)} tests" if others else names_of(kind.results)
    if first.check is Check.NOT_WRITTEN:
        return (line := ["", f"- {headline}"]), line
    if first.check is Check.RULES or kind.told:
        return (line := ["", f"- {headline}: {count}"]), line
    if first.text == first.headline:
        return ["", f"- {headline}: {names_of(kind.results)}"], ["", f"- {headline}: {count}"]
    full = [
        "",
        f"`{first.test}`{f', and {len(others)} more in the same way' * bool(others)}:",
        "",
        *_fenced(first.text),
    ]
    return [*full, *(["", f"The others: {names_of(others)}."] if others else [])], ["", f"- {headline}: {count}"]


def names_of(results: Iterable[Result]) -> str:
    """The tests, those of one function together, hidden ones last."""
    functions: dict[str, list[Result]] = {}
    for result in results:
        functions.setdefault(result.function, []).append(result)
    names = {
        name: f"{len(cases)} of `{name}`" if cases[1:] else f"`{cases[0].test}`" for name, cases in functions.items()
    }
    shown = (
        [names[name] for name, cases in functions.items() if cases[0].hidden == hidden] for hidden in (False, True)
    )
    public, hidden = map(", ".join, shown)
    return "; ".join([public] * bool(public) + [f"hidden: {hidden}"] * bool(hidden))


def _told(text: str) -> Block:
    first, *others = text.splitlines()
    return ["", *_fenced(text)], ["", f"- {_code(first)}{' ...' * bool(others)}"]


def _fitted(blocks: Sequence[Block]) -> list[str]:
    """The lines of all blocks, the first of them in full, as many as there is room for."""
    shown = [short for _, short in blocks]
    room = MAX_LINES - sum(map(len, shown))
    for i, (full, short) in enumerate(blocks):
        if (more := len(full) - len(short)) <= room:
            shown[i], room = full, room - more
    lines = [line for block in shown for line in block]
    return (
        lines
        if room >= 0
        else [*lines[: MAX_LINES - 2], "", f"There is more, but {MAX_LINES} lines are enough to start with."]
    )


def shown(message: str) -> str:
    """The message as it can be printed anywhere, cut off where it is too long to be read."""
    text = printable(message[: MAX_MESSAGE + 1])
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "\n(cut off)"


def _fenced(text: str) -> list[str]:
    """A code block that nothing in `text` can end."""
    fence = "`" * max(3, 1 + _longest(text))
    lines = shown(text).splitlines()
    more = [f"({len(lines) - MAX_BLOCK} more lines)"] if len(lines) > MAX_BLOCK else []
    return [f"{fence}text", *lines[:MAX_BLOCK], *more, fence]


def _code(text: str) -> str:
    """A line of code that nothing in `text` can end."""
    fence = "`" * (1 + _longest(text))
    line = " ".join(printable(text).split())[:MAX_LINE]
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _longest(text: str) -> int:
    """Of the runs of backticks."""
    return max(map(len, re.findall(r"`+", text)), default=0)


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
