"""Errors of a student's code in words, and what a tutor would ask about them."""

import re
from pathlib import Path

from whichline.engine.failure import describe
from whichline.way.definitions import NOT_MATCHED

LONGEST = 160  # of a message
PLACE = re.compile(r"\S+:\d+, in ")  # what comes before a line of the student's

# What to ask about an error, before what its condition asks: the first whose pattern is in the message.
QUESTIONS = (
    (r"^((Syntax|Indentation|Tab)Error|SystemExit)", ""),
    (r"^(ModuleNotFound|Import)Error", "Which file or package should define that name, and how is it spelt there?"),
    (r"^(Name|UnboundLocal)Error", "Which line should define that name, and does it run before this one?"),
    (r"state_dict", "What are your module's parameters called, and what does your adapter call them?"),
    (
        r"view size is not compatible",
        "How does a transposed tensor lie in memory, and what does view need that reshape does not?",
    ),
    (
        r"shape of the mask .* does not match the shape of the indexed tensor",
        "`x[mask]` does not broadcast the mask: which operations do?",
    ),
    (
        r"needed for gradient computation .* inplace",
        "Which line, this one or a later one, changes in place what a gradient needs?",
    ),
    (r"out of (bounds|range)", "Which indices are there along that axis, and which one does this line ask for?"),
    (r"in-?place", "Which operation in this line changes a tensor in place? Whose tensor is it?"),
    (NOT_MATCHED, "Which arguments does the `def` name, and which does the call pass?"),
)
OWN_CHECK = "What does this check refuse, and does the handout allow this call?"
SHAPES = "Which shapes meet in this line, and which of their axes line up?"
ANYTHING = "What does this line take for granted?"


def explain_error(error: BaseException, root: Path) -> tuple[list[str], tuple[str, ...]]:
    """The message and what it means, in sentences, and the shapes of what met in the line that raised."""
    failure = describe(error, root)
    starts = [i for i, line in enumerate(failure.details) if PLACE.match(line)] or [len(failure.details)]
    raw = [line.strip() for line in str(error).splitlines()]
    is_marked = isinstance(error, SyntaxError) and error.text is not None  # its details are the line and a mark
    plain = [] if is_marked else failure.details[: starts[0]]
    message = re.sub("^einops.*", "EinopsError: the pattern does not fit.", _shorten(failure.headline))
    said = [message, *(_as_sentence(line) for line in plain if line.strip() not in raw)]
    return said, failure.details[starts[-1] + 2 :]


def ask_about(message: str, line: str, by_condition: str) -> str:
    """A question about an error in a line of code, or else the one that its condition asks."""
    if re.match(r"\s*(raise|assert)\b", line):
        return OWN_CHECK
    for pattern, question in QUESTIONS:
        if re.search(pattern, message):
            return question
    return by_condition or (SHAPES if re.search("shape|size|dimension|axis|axes|pattern|einsum", message) else ANYTHING)


def _shorten(message: str) -> str:
    """A message without what torch advises; its first sentence, or its beginning, if it is long."""
    line = message.partition(" Hint: ")[0]
    if len(line) > LONGEST:
        line = re.split(r"\.\s+(?=[A-Z])", line)[0]
    return f"{line[:LONGEST].rpartition(' ')[0] or line[:LONGEST]} …" if len(line) > LONGEST else line


def _as_sentence(line: str) -> str:
    begins = line[:1].upper() + line[1:]
    return begins if begins.endswith(("?", ".", ":")) or line.startswith(" ") else f"{begins}."
