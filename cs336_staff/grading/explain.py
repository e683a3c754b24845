"""Why a test did not pass: for staff with everything, for students without a value of a hidden input or answer.

What a submission says while a hidden test runs may spell hidden inputs: the text and the type's name of its exceptions,
names of its functions and of files that it did not hand in, what it writes into a reply. Students see none of it.
"""

import builtins
from traceback import FrameSummary

from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.failure import Failure
from cs336_staff.sandbox.submission import Submission
from cs336_staff.sandbox.worker import ProtocolViolation, StudentError, WorkerStopped


def mark_student_frames(error: StudentError | WorkerStopped) -> None:
    """Tell `cs336_kit.engine.failure` where the student's exception came from: the frames are in another process."""
    if isinstance(error, WorkerStopped):
        error.student_error, error.student_frames = str(error), []  # type: ignore[attr-defined]
        return
    failure = error.failure
    error.student_error = f"{failure.type}: {failure.message}"  # type: ignore[attr-defined]
    error.student_frames = [  # type: ignore[attr-defined]
        FrameSummary(line.file, line.number, line.function, line=line.source) for line in failure.lines
    ]


def for_student(error: BaseException, report: Failure, case: Case | None, submission: Submission) -> str:
    """The message of a hidden test that failed.

    Args:
        error: what ended the test.
        report: the same in the words of the kit.
        case: what the test ran on.
        submission: what was handed in.
    """
    if isinstance(error, StudentError):
        lines = [_type(error), *_own_lines(error, submission)]
    elif isinstance(error, ProtocolViolation):
        lines = ["the reply was not written by the code that should write it: what wrote to its channel?"]
    elif isinstance(error, WorkerStopped):
        lines = [str(error)]
    else:
        lines = [report.headline]
    return "\n".join([*lines, *([] if case is None else _shapes(case))])


def _type(error: StudentError) -> str:
    name = error.failure.type
    return name if isinstance(getattr(builtins, name, None), type) else "an exception"


def _own_lines(error: StudentError, submission: Submission) -> list[str]:
    shown = []
    for line in error.failure.lines:
        if source := submission.line(line.file, line.number):
            shown += [f"  {line.file}:{line.number}", f"      {source}"]
    return shown


def _shapes(case: Case) -> list[str]:
    """Shapes and sizes of the inputs, and no value of theirs."""
    tensors = {name: x for name, x in case.inputs.items() if isinstance(x, Tensor)}
    sizes = {name: x for name, x in case.inputs.items() if isinstance(x, int)}
    shown = [f"{name} {tuple(x.shape)} {x.dtype}".replace("torch.", "") for name, x in tensors.items()]
    return ["  it was called with " + ", ".join(shown + [f"{name}={x}" for name, x in sizes.items()])]
