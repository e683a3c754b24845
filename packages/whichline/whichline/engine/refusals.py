"""Describe what grading refuses to do. Nothing here imports torch."""

import re
from pathlib import PurePath

# The system's messages in the sandbox, which allows no writing and has neither the student's files nor a network.
REFUSED = re.compile(r"Operation not permitted(?:: '(.+?)')?|\[Errno 2\] [\w ]+: '(.+?)'|\[Errno -\d+\]")


def describe_refusal(message: str) -> str:
    """Describe a refusal with this message, to continue the sentence "this line ..."; "" for other errors."""
    if not (refused := REFUSED.search(message)):
        return ""
    file = refused[1] or refused[2]
    what = f"uses {PurePath(file).name or file}" if file else "cannot do this"
    return f"{what}: in grading there are no files, network or processes"
