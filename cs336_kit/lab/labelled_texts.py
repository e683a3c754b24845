"""Texts with labels, from a CSV or TSV file."""

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.classifier_file import words

DELIMITERS = {".csv": ",", ".tsv": "\t"}
OURS = Path(str(files("cs336_kit.lab"))) / "sentences.tsv"
SPLIT = "split"
TRAIN, HELD_OUT = "train", "held-out"
SHARE_HELD_OUT = 0.2


@dataclass(frozen=True)
class LabelledText:
    """One row."""

    text: str
    label: str


@dataclass(frozen=True)
class Split:
    """The rows to learn from, and those that tell how much was learnt."""

    train: Sequence[LabelledText]
    held_out: Sequence[LabelledText]

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label once, in the order of the alphabet."""
        return tuple(sorted({row.label for row in (*self.train, *self.held_out)}))


def read_labelled_texts(path: Path, text: str, label: str, seed: int) -> Split:
    """Read a file whose first line names its columns.

    A column called "split" says "train" or "held-out" for each row; without it, a fifth of the rows is held out.

    Args:
        path: the file; its suffix says what separates the columns.
        text: the column that is read.
        label: the column that is learnt.
        seed: draws which rows are held out.

    Raises:
        BadInput: the file cannot be read, lacks a column, has a row without a word or a label, or there are too few
            rows or labels to learn from.
    """
    columns, rows = _read(path)
    if not columns:
        raise BadInput(f"{path} is empty: its first line names the columns")
    for option, column in (("text", text), ("label", label)):
        if column not in columns:
            raise BadInput(f"{path} has no column {column}, it has {', '.join(columns)}; name one with --{option}")
    examples, splits = [], []
    for line, row in rows:
        if not words(row[text] or ""):
            raise BadInput(f"{path}, line {line}: no word in the column {text}; write one or take the line out")
        if not (row[label] or "").strip():
            raise BadInput(f"{path}, line {line}: nothing in the column {label}; write one or take the line out")
        examples.append(LabelledText(row[text].strip(), row[label].strip()))
        splits.append(row.get(SPLIT))
        if SPLIT in columns and splits[-1] not in (TRAIN, HELD_OUT):
            raise BadInput(f"{path}, line {line}: expected {TRAIN} or {HELD_OUT} in the column {SPLIT}")
    if SPLIT not in columns:
        splits = [HELD_OUT] * round(SHARE_HELD_OUT * len(examples))
        splits += [TRAIN] * (len(examples) - len(splits))
        random.Random(seed).shuffle(splits)  # noqa: S311 (nobody is to be kept from guessing)
    parts = {part: [row for row, of in zip(examples, splits, strict=True) if of == part] for part in (TRAIN, HELD_OUT)}
    if len({row.label for row in parts[TRAIN]}) < 2 or not parts[HELD_OUT]:
        raise BadInput(f"{path} has too few rows: expected two labels to learn, and at least one row to hold out")
    return Split(parts[TRAIN], parts[HELD_OUT])


def _read(path: Path) -> tuple[Sequence[str], list[tuple[int, dict[str, str]]]]:
    """The names of the columns, and each row with the number of the line that it ends on."""
    if path.suffix not in DELIMITERS:
        raise BadInput(f"expected a file that ends in {' or '.join(DELIMITERS)}, got {path}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=DELIMITERS[path.suffix])
            return reader.fieldnames or (), [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is not a table in UTF-8 ({error}); save it as one") from None
