"""Say to students what failed in a hidden test.

A submission sees hidden inputs, and could spell them in whatever it says: in texts, numbers and shapes, in the lines
that an exception goes through, in the case that is the smallest it fails on. So what failed in a hidden test is said in
fixed sentences (`for_student`), with one name of a function that stood in the source before. Staff see the rest.
"""

import re
from dataclasses import replace
from functools import cache

from cs336_kit.engine.result import Check, Outcome, Result
from cs336_staff.sandbox.submission import Submission

MEDDLED = "something other than the grader wrote this reply: does your code write to a descriptor that it did not open?"
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
