"""The record of what a submission has answered, which its tests can be run on again without running any of its code."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from cs336_kit.engine.finding import Finding
from cs336_staff.grading.grading import Matrix
from cs336_staff.grading.questions import values_of
from cs336_staff.grading.suite import GradedSuite
from cs336_staff.sandbox.answer import KINDS, Answer, check
from cs336_staff.sandbox.inside.frames import encode
from cs336_staff.sandbox.question import Question

CARRIED = "carried into "  # before the name of a test
LEVEL = 1  # of compression: numbers hardly get smaller


@dataclass
class Sealed:
    """All that was taken from a submission.

    Args:
        answers: to each test's questions, by its name; those to the import under "import"; those that were taken while
            earlier problems were answered for it under names with a prefix.
        lent: the adapters that were answered for it, by test.
        explanations: what was found by a process that earns nothing.
        weights: of its attention on one public case.
        peak_memory: the most bytes that a process of its held at once.
    """

    answers: dict[str, Sequence[Answer]] = field(default_factory=dict)
    lent: dict[str, Sequence[str]] = field(default_factory=dict)
    explanations: tuple[Finding, ...] = ()
    weights: Matrix = ()
    peak_memory: int = 0

    def as_bytes(self, suite: GradedSuite) -> bytes:
        """The record, as `read_sealed` reads it."""
        pieces: list[bytes] = []
        entries = {name: [_describe(answer, pieces) for answer in each] for name, each in self.answers.items()}
        about = {
            "asked": suite.asked_sha256,
            "answers": entries,
            "lent": self.lent,
            "explanations": [each.as_json() for each in self.explanations],
            "weights": self.weights,
            "peak_memory": self.peak_memory,
        }
        return zlib.compress(b"\n".join((json.dumps(about).encode(), b"".join(pieces))), LEVEL)


def read_sealed(record: bytes, suite: GradedSuite) -> Sealed | None:
    """The record, if it is of the questions of this suite; each answer is checked as it was when it came."""
    try:
        about, _, rest = zlib.decompress(record).partition(b"\n")
        fields = json.loads(about)
        if fields["asked"] != suite.asked_sha256:
            return None
        answers: dict[str, Sequence[Answer]] = {}
        for name, entries in fields["answers"].items():
            found: list[Answer] = []
            for number, entry in enumerate(entries):
                header, body = entry["bytes"]
                raw, rest = (rest[:header], rest[header : header + body]), rest[header + body :]
                asked = suite.questions.get(name.removeprefix(CARRIED))
                found.append(_read(entry, raw, asked[number] if asked else None, found))
            answers[name] = found
        explanations = tuple(Finding.from_json(each) for each in fields["explanations"])
        weights = tuple(map(tuple, fields["weights"]))
        return Sealed(answers, fields["lent"], explanations, weights, fields["peak_memory"])
    except (zlib.error, ValueError, LookupError, TypeError):  # a damaged one is as good as none
        return None


def _describe(answer: Answer, pieces: list[bytes]) -> dict[str, Any]:
    pieces.extend(answer.raw)
    stopped = answer.stopped and [type(answer.stopped).__name__, str(answer.stopped)]
    return {"bytes": [*map(len, answer.raw)], "printed": answer.printed, "stopped": stopped}


def _read(entry: dict[str, Any], raw: tuple[bytes, bytes], asked: Question | None, before: Sequence[Answer]) -> Answer:
    printed = tuple(entry["printed"])
    if entry["stopped"]:
        kind, message = entry["stopped"]
        return Answer(stopped=KINDS[kind](message), printed=printed)
    tensors: list[Tensor] = []
    if asked:
        encode(asked.fill_in(values_of(before)), tensors)
    return replace(check(raw, json.loads(raw[0])["token"], tensors), printed=printed)
