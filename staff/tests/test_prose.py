"""What people read is written in the voice of CONTRIBUTING.md: Markdown, docstrings, and every string of a program."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from staff.tests import ROOT

# Everything that people read; the programs in the first folder are kept as they were written.
KEPT = ROOT / "staff/right_programs"
WRITTEN = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "adapters.py",
    "assignment.toml",
    "cs336_basics",
    "lab",
    "packages",
    "staff/course.toml",
    "staff/handout",
    "staff/tools",
    "docs",
    "tests",
)

# What nobody writes who grew up with English, and what to write.
PATTERNS = {
    r"(?<!there )(?<!There )\b(is|are|was|were) no (?!longer|more|less)[a-z]": "is not a",
    r"\b(is|are|was|were|it) none\b": "is not one, has none, or say what it is",
    r"\b(including|among them|included), none\b|\bnone among them\b": "including none",
    r"\b(and|which) should to\b|, should to\b": "but should sum to",
    r"\b(just|precisely) these numbers\b": "exactly these numbers",
    r"\bwhich must it get\b": "which does it still need",
    r"\bmend(s|ed|ing)?\b": "fix, correct",
    r"\bwhat does the work\b": "name the thing that does it",
    r"\b(idea|notion) of resemblance\b": "notion of similarity",
    r"\b(a|the) such\b|\bsuch a one\b": "such a, or name it",
    r"\bstand(s)? (there )?where\b": "is where",
    r"\bmakes no difference between\b": "does not distinguish",
    r"\bby your own attention\b": "computed by your attention",
    r"\b(in|after) which order one\b": "in which order you",
}
DOCSTRING = r"(What|Whether|Who|Whom|How|Which|Where|When|Why)\b"


def test_nothing_that_a_native_speaker_would_not_write() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write: {better}"
        for path in _files()
        for number, text in _texts(path)
        for match, better in _wrong(text)
    ]
    assert not found, "\n" + "\n".join(found)


def test_a_docstring_begins_with_a_verb_or_a_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {text.splitlines()[0]}"
        for path in _files()
        if path.suffix == ".py"
        for number, text in _docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if re.match(DOCSTRING, text)
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "it is no zip",
        "a violation that is none",
        "it sums to 0.5, and should to 1",
        "which mistake gives just these numbers",
        "any number of leading dimensions, none among them",
        "Which factor mends it?",
    ],
)
def test_the_patterns_find_what_they_are_for(text: str) -> None:
    assert [*_wrong(text)]


@pytest.mark.parametrize("text", ["there is no next token", "it is no longer there", "any number, including none"])
def test_the_patterns_leave_english_alone(text: str) -> None:
    assert not [*_wrong(text)]


def _wrong(text: str) -> Iterator[tuple[re.Match[str], str]]:
    flat = " ".join(text.split())
    for pattern, better in PATTERNS.items():
        for match in re.finditer(pattern, flat):
            yield match, better


def _files() -> Iterator[Path]:
    for name in WRITTEN:
        path = ROOT / name
        assert path.exists(), f"{name} has gone; take it out of the list"
        below = [found for suffix in ("md", "py", "toml") for found in sorted(path.rglob(f"*.{suffix}"))]
        yield from (each for each in below or [path] if not each.is_relative_to(KEPT))


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with its first line: strings of a program, paragraphs of anything else."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
        return
    number = 1
    for paragraph in re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), source, flags=re.DOTALL).split(
        "\n\n"
    ):
        yield number + len(paragraph) - len(paragraph.lstrip("\n")), paragraph
        number += paragraph.count("\n") + 2


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text
