"""What students may read of a hidden test that failed: no value of its inputs or answers.

What a submission says while a hidden test runs may spell hidden inputs: the text and the type's name of its exceptions,
names of its functions and of files that it did not hand in, what it writes into a reply. Students see none of it.
"""

import builtins
from dataclasses import replace

from cs336_kit.engine.result import Check, Outcome, Result
from cs336_staff.sandbox.submission import Submission

MEDDLED = "the reply was not written by the code that should write it: what wrote to its channel?"


def for_student(result: Result, submission: Submission) -> Result:
    """The result of a hidden test in words for students; what staff may see besides is in `staff`.

    Args:
        result: what became of the test.
        submission: what was handed in.
    """
    if result.passed:
        return result
    if result.outcome is Outcome.VIOLATION:
        headline, details = MEDDLED, ()
    elif result.check is Check.CALL and result.raised:
        headline, details = _kind(result.raised), _own_lines(result, submission)
    else:
        headline, details = result.headline, ()
    return replace(result, headline=headline, details=details, on_paper=(), staff=result.text)


def _kind(raised: str) -> str:
    return raised if isinstance(getattr(builtins, raised, None), type) else "an exception"


def _own_lines(result: Result, submission: Submission) -> tuple[str, ...]:
    shown = []
    for file, number in result.lines:
        if source := submission.line(file, number):
            shown += [f"{file}:{number}", f"    {source}"]
    return tuple(shown)
