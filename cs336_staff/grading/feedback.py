"""Write what students read: `results.json` in Gradescope's format, and feedback in Markdown.

A submission sees hidden inputs, and could spell them in whatever it says: in texts, numbers and shapes, in the lines
that an exception goes through, in the case that is the smallest it fails on. So what failed in a hidden test is said in
fixed sentences (`for_student`), with one name of a function that stood in the source before. Staff see the rest.
"""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import Problem
from cs336_kit.engine.result import Check, Explanation, Outcome, Result
from cs336_staff.grading.gradebook import Grading
from cs336_staff.grading.grades import Grade, account_for, say_points
from cs336_staff.sandbox.printable import printable
from cs336_staff.sandbox.submission import Submission

MEDDLED = "the reply was not written by the code that should write it: what wrote to its channel?"
RAISED = (
    *("AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "MemoryError", "NameError"),
    *("NotImplementedError", "RecursionError", "RuntimeError", "SyntaxError", "TypeError", "UnboundLocalError"),
    *("ValueError", "ZeroDivisionError"),
)
# Headlines with something in them that the submission chose, and what is said in their place.
SENTENCES = (
    (r"(the [\w ]+) has shape .*", r"\1 does not have the expected shape"),
    (r"(the [\w ]+) has dtype .*", r"\1 does not have the dtype of the inputs"),
    (r"(the [\w ]+) is NaN or infinite in .*", r"\1 is NaN or infinite"),
    (r"(the [\w ]+) is wrong in .*", r"\1 is wrong"),
    (r"the answer is .*, expected (a tuple: .*)", r"the answer is not \1"),
    (r"(the [\w ]+) is .*, expected a tensor.*", r"\1 is not a tensor: is a `return` missing?"),
)

MAX_MESSAGE = 4_000
# Of feedback.md, of an exception in it, of numbers and printed text, and of a line of code: what students take in.
MAX_LINES, MAX_BLOCK, MAX_DUMP, MAX_LINE = 100, 24, 12, 200
# The same in every test that it ends: its headline says where, or there is no example of it.
MANY_TESTS = (Check.CALL, Check.NOT_WRITTEN)

PLAIN = r"[^\w ,.:%-]"  # of names, what may mean something in Markdown

# Lines of feedback by their turn: a later turn has more lines, which take the place of the earlier ones if there is
# room. What has the first turn is there in any case.
Block = dict[int, list[str]]
FIRST, LINE, WHOLE, LAST = 0, 1, 2, 1_000


@cache
def _sentences_of_problems() -> tuple[tuple[str, str], ...]:
    from cs336_staff.authoring.room import load_rooms  # which imports torch, and few commands need it

    return tuple(sentence for room in load_rooms().values() for sentence in room.sentences)


def for_student(result: Result, submission: Submission, stored: bool) -> Result:
    """The result of a hidden test in words for students; what staff may see besides is in `staff`.

    Args:
        result: what became of the test.
        submission: what was handed in.
        stored: whether the test has one stored case; of drawn ones, the submission chose the one that is told.
    """
    if result.passed:
        return result
    inputs = result.inputs if stored else ()
    headline = _say_what(result) + _say_where(result, submission)
    return replace(result, headline=headline, details=(), on_paper=(), inputs=inputs, staff=result.text)


def _say_what(result: Result) -> str:
    if result.outcome is Outcome.VIOLATION:
        return MEDDLED
    if result.check is Check.NOT_WRITTEN:
        return "not implemented yet"
    if result.raised:
        return result.raised if result.raised in RAISED else "an exception"
    return sentence(result.headline)


def sentence(headline: str) -> str:
    """The headline of a wrong answer without what the submission chose: the same for all of one kind."""
    for pattern, fixed in (*SENTENCES, *_sentences_of_problems()):
        if match := re.match(pattern, headline):
            return match.expand(fixed) + headline[match.end() :]
    return headline


def _say_where(result: Result, submission: Submission) -> str:
    """The innermost function that an exception went through, if there is a `def` of it."""
    for file, function in reversed(result.functions):
        name = function.rpartition(".")[2]
        source = submission.files.get(file, b"").decode(errors="replace")
        if name.isidentifier() and re.search(rf"\bdef {name}\b", source):
            return f" in {name} of {file}"
    return ""


def write_reports(
    folder: Path, grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade] = ()
) -> None:
    """Write `results.json` and `feedback.md` of one submission; a file is there whole or not at all.

    Args:
        folder: for them.
        grading: the submission.
        problems: by id, with public and hidden tests.
        grades: those of its students.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "results.json", json.dumps(results(grading, problems, grades), indent=1))
    write_atomically(folder / "feedback.md", feedback(grading, problems, grades))


def results(grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade] = ()) -> dict[str, Any]:
    """The report as Gradescope reads it: a box for each problem, and a hidden one once grades are published.

    Points have two digits; all digits are in `extra_data`.
    """
    boxes = [
        box for number, problem in enumerate(problems.values(), 1) for box in _fill_boxes(number, problem, grading)
    ]
    explained = ("\n".join((f"{each.problem}:", *each.lines)) for each in grading.notes.explanations)
    account = "\n".join(f"{what}: {points}" for what, points in account_for(grades))
    return {
        "score": round(min((each.points for each in grades), default=grading.points), 2),
        "output": "\n\n".join((*filter(None, [account]), *remarks(grading), *explained, *printed(grading))),
        "output_format": "text",
        "tests": boxes,
        "extra_data": {
            "submission": grading.submission,
            "points": grading.points,
            "maximum": grading.maximum,
            "grades": [
                {
                    "student": each.student.key,
                    "days_late": each.days_late,
                    "penalty": each.penalty,
                    "grade": each.points,
                }
                for each in grades
            ],
            "content": grading.content,
            "suite": grading.suite,
            "sandbox": grading.layer,
            "started": grading.started.isoformat(),
        },
    }


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
        paid: that, for each work.
        results: of its tests.
        explanations: what the examination found, without what is told of an earlier problem.
        kinds: what fails; nothing where all pass, and for a bonus problem that is not written.
    """

    problem: Problem
    points: float
    paid: Mapping[str, float]
    results: Sequence[Result]
    explanations: Sequence[Explanation]
    kinds: Sequence[Kind]

    @property
    def title(self) -> str:
        return self.problem.title + " (bonus)" * self.problem.bonus

    @property
    def lost(self) -> str:
        """The points lost in each test function, most first, and for works that are not the student's own."""
        follows = " (from an earlier problem)" * any(each.is_of_earlier for each in self.explanations)
        if not any(result.passed for result in self.results):
            return f"all of them{follows}"
        lost = [f"{points:.2f} in {function}{follows}" for function, points in lose(self.results).items()]
        lost += [f"{points:.2f} for {work}, which is not your own work" for work, points in self.paid.items()]
        return ", ".join(lost)

    @property
    def state(self) -> str:
        if _is_unwritten(self.results):
            return "not written"
        return f"{sum(result.passed for result in self.results)} / {len(self.results)}"


def sections(grading: Grading, problems: Mapping[str, Problem]) -> Iterator[Section]:
    """Tell for each problem what fails and why. An exception is told once, however many problems it breaks."""
    told: set[tuple[str, str]] = set()  # the exceptions of the problems before, and where each was raised
    for problem in problems.values():
        results, paid = grading.results_of(problem.id), grading.charges.get(problem.id, {})
        passed = all(result.passed for result in results)
        if passed or grading.notes.refused or (_is_unwritten(results) and problem.bonus):
            yield Section(problem, grading.points_of(problem.id), paid, results, (), ())
            continue
        explanations = [each for each in grading.notes.explanations if each.problem == problem.id]
        new = [each for each in explanations if error_of(each) not in told]
        told.update(error for each in explanations if (error := error_of(each)))
        kinds = []
        for kind in _sort_kinds(results):
            error = kind[0].headline, _place(kind[0].details)
            kinds.append(Kind(kind, error in told))
            if kind[0].check is Check.CALL:
                told.add(error)
        yield Section(problem, grading.points_of(problem.id), paid, results, new, kinds)


def error_of(explanation: Explanation) -> tuple[str, str] | None:
    """The exception that the student's code raised and where it did, if that is what was found."""
    found, place = re.search("`(.*)`", explanation.lines[0], re.DOTALL), _place(explanation.lines)
    return (found[1], place) if found and place else None


def _place(lines: Iterable[str]) -> str:
    """The innermost line of the student's that an exception went through, by file and number."""
    places = [match[1] for line in lines if (match := re.match(r' *(.+:\d+), in |( *File ".+", line \d+)', line))]
    return places[-1] if places else ""


def feedback(
    grading: Grading, problems: Mapping[str, Problem], grades: Sequence[Grade] = (), told: Sequence[Section] = ()
) -> str:
    """Write what the student reads: points, findings, an example of each kind of failure, and what the code printed.

    What is `told` of each problem may be there already. Findings are whole. For the rest there is room up to
    `MAX_LINES` lines.
    """
    head = [f"# {_code(grading.submission)}: {say_points(grading, grades)}", ""]
    head += ["| Problem | Points | Tests passed |", "|---|---:|---:|"]
    blocks = [_show_text(remark, WHOLE) for remark in remarks(grading)]
    for section in told or sections(grading, problems):
        head.append(f"| {section.title} | {section.points:.2f} / {section.problem.points:g} | {section.state} |")
        if section.kinds:
            blocks.append({FIRST: ["", f"## {section.problem.title}", "", f"Points lost: {section.lost}"]})
        blocks += [{FIRST: ["", *_fence(cut_block("\n".join(each.lines), MAX_LINES))]} for each in section.explanations]
        blocks += [_show_kind(kind, number) for number, kind in enumerate(section.kinds)]
    for what, points in (("Points", f"{grading.points:.2f} / {grading.maximum:g}"), *account_for(grades)):
        head.append(f"| **{re.sub(PLAIN, ' ', what)}** | **{points}** | |")
    blocks += [_show_text(text, LAST) for text in printed(grading)]
    return "\n".join(_fit([{FIRST: head}, *blocks])) + "\n"


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


def _is_unwritten(results: Iterable[Result]) -> bool:
    return all(result.check is Check.NOT_WRITTEN for result in results)


def _sort_kinds(results: Iterable[Result]) -> list[list[Result]]:
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


def _fill_boxes(number: int, problem: Problem, grading: Grading) -> Iterator[dict[str, Any]]:
    """The boxes of the public and of the hidden tests of a problem; what it pays is taken from the first ones first."""
    paid = grading.charges.get(problem.id, {})
    owed = math.fsum(paid.values())
    for stage, hidden in enumerate((False, True), start=1):
        if results := [each for each in grading.results_of(problem.id) if each.hidden is hidden]:
            pays = min(owed, math.fsum(result.points for result in results))
            owed -= pays
            why = [f"{pays:.2f} points lost for {' and '.join(paid)}: not your own work"] if pays else []
            yield _fill_box(f"{number}.{stage}", problem, results, pays, why)


def _fill_box(
    number: str, problem: Problem, results: Sequence[Result], pays: float, why: Sequence[str]
) -> dict[str, Any]:
    hidden, passed, lost = results[0].hidden, sum(result.passed for result in results), lose(results)
    earned = math.fsum(result.points for result in results) - pays
    text = [f"{passed} of {len(results)} tests pass.", *why] if lost or why else []
    text += [f"{points:.2f} points lost in {function}" for function, points in lost.items()]
    for first, *others in _sort_kinds(results):
        text += ["", f"{first.test}:", make_printable(first.text)]
        text += [f"The same in {', '.join(other.test for other in others)}."] if others else []
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


def lose(results: Iterable[Result]) -> dict[str, float]:
    """The points that are lost in each test function that loses any, most first."""
    functions = by_function(result for result in results if not result.passed)
    lost = {function: math.fsum(case.maximum for case in cases) for function, cases in functions.items()}
    return dict(sorted(lost.items(), key=lambda each: -each[1]))


def _show_kind(kind: Kind, number: int) -> Block:
    """A line, and below it an example if there is more to tell: the first kind of each problem has the first turn."""
    names = f"{len(kind.results)} tests" if kind.told and len(kind.results) > 1 else kind.names
    line = [*([] if number else [""]), f"- {_code(kind.headline)}{f': {names}' if names else ''}"]
    return {LINE: line, WHOLE + number: [*line, "", *_fence(kind.example)]} if kind.example else {LINE: line}


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


def _show_text(text: str, turn: int) -> Block:
    """The first line of a text, and all of it, as long as a dump may be."""
    first, *others = text.splitlines()
    whole = ["", *_fence(cut_block(text, MAX_DUMP))]
    return {LINE: ["", f"- {_code(first)}{' ...' * bool(others)}"]} | ({turn: whole} if others else {})


def _fit(blocks: Sequence[Block]) -> list[str]:
    """The lines of all blocks; room is given turn by turn, and in each to the first blocks first."""
    shown: list[list[str]] = [[] for _ in blocks]
    for turn in sorted({turn for block in blocks for turn in block}):
        for i, block in enumerate(blocks):
            lines = block.get(turn, shown[i])
            if turn == FIRST or sum(map(len, shown)) - len(shown[i]) + len(lines) <= MAX_LINES - 2:
                shown[i] = lines
    more = [] if all(shown) else ["", f"There is more, but {MAX_LINES} lines are enough to start with."]
    return [*(line for lines in shown for line in lines), *more]


def make_printable(message: str) -> str:
    """The message as it can be printed anywhere, cut off where it is too long to be read."""
    text = printable(message[: MAX_MESSAGE + 1])
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "\n(cut off)"


def _fence(lines: Sequence[str]) -> list[str]:
    """A code block that nothing in its lines can end."""
    fence = "`" * max(3, 1 + _longest_fence("\n".join(lines)))
    return [f"{fence}text", *lines, fence]


def cut_block(text: str, most: int = MAX_BLOCK) -> list[str]:
    """The lines of a text, as many as students take in."""
    lines = make_printable(text).splitlines()
    more = [f"({len(lines) - most} more lines)"] if len(lines) > most else []
    return lines[:most] + more


def _code(text: str) -> str:
    """A line of code that nothing in `text` can end."""
    fence = "`" * (1 + _longest_fence(text))
    line = " ".join(printable(text).split())[:MAX_LINE]
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _longest_fence(text: str) -> int:
    """Of the runs of backticks."""
    return max(map(len, re.findall(r"`+", text)), default=0)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that is there whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.replace(beside, path)
