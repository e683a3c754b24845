"""Say in words what code is refused while it is graded. Nothing here imports torch."""

import re
from pathlib import PurePath

# The system's messages in the sandbox, where nobody may write and there are no files of the student's and no network.
REFUSED = re.compile(r"Operation not permitted(?:: '(.+?)')?|\[Errno 2\] [\w ]+: '(.+?)'|\[Errno -\d+\]")


def describe_refusal(message: str) -> str:
    """Say after "this line" what the error with this message means for grading; nothing of other errors."""
    if not (refused := REFUSED.search(message)):
        return ""
    file = refused[1] or refused[2]
    what = f"uses {PurePath(file).name or file}" if file else "cannot do this"
    return f"{what}: in grading there are no files, network or processes"
