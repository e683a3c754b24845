"""Find the answers that submissions gave on other machines, so that one machine can judge the whole class."""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from whichline.engine.errors import CourseworkError
from whichline_grader.grading.suite import GradedSuite
from whichline_grader.grading.transcripts import read_provenance

TOKEN = re.compile(rb'"token": ?"[0-9a-f]+"')  # of a question, drawn each time that it is asked


class AnswersError(CourseworkError):
    """A submission cannot be judged by these answers; the message says why, and what to do."""


def find_answers(folders: Sequence[Path], content: str, suite: GradedSuite) -> bytes:
    """The record of what the submission with this content answered, from one of the folders."""
    paths = [path for folder in folders if (path := folder / content).is_file()]
    if not paths:
        raise AnswersError("its answers are in no folder of --answers; `grade` without --answers asks it here")
    records = [path.read_bytes() for path in paths]
    for path, record in zip(paths, records, strict=True):
        found, expected = read_provenance(record), suite.compute_provenance(content)
        if found is None:
            raise AnswersError(f"{path} is damaged; copy it again")
        if found.content != content:
            raise AnswersError(f"{path} has the answers of another submission; copy it again")
        if found.seed != expected.seed:
            raise AnswersError(f"{path} answers hidden cases of another secret; grade it with that of this course")
        if found.asked != expected.asked:
            what = "another suite, or with other limits, another Python or another torch"
            raise AnswersError(f"{path} was written with {what}; grade it again with those of this machine")
    if len({_drop_tokens(record) for record in records}) > 1:
        raise AnswersError(f"it answered twice, and not the same: delete one of {' and '.join(map(str, paths))}")
    return records[0]


def _drop_tokens(record: bytes) -> bytes:
    """What a submission said, whatever it was asked with."""
    try:
        return TOKEN.sub(b"", zlib.decompress(record.partition(b"\n")[2]))
    except zlib.error:
        return record
