"""Training an attention classifier on texts with labels, from a CSV or TSV file."""

import csv
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from cs336_kit.lab.bad_input import BadInput, reject_unreadable
from cs336_kit.lab.classifier import Classifier, split_words

DELIMITERS = {".csv": ",", ".tsv": "\t"}
OURS = Path(str(files("cs336_kit.lab"))) / "sentences.tsv"
SPLIT = "split"
TRAIN, HELD_OUT = "train", "held-out"
SHARE_HELD_OUT = 0.2

SIZES = {"d_model": 32, "num_heads": 2, "max_distance": 8}
DROPOUT = 0.1
# A word that is hidden now and then teaches what to do with words that were never seen.
HIDDEN_WORDS = 0.1
BATCH = 32
LEARNING_RATE = 1e-2
WARM_UP = 0.1  # of all steps
WEIGHT_DECAY = 0.2


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
    if path.suffix not in DELIMITERS:
        raise BadInput(f"expected a file that ends in {' or '.join(DELIMITERS)}, got {path}")
    try:
        with reject_unreadable(path), path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=DELIMITERS[path.suffix])
            columns = reader.fieldnames or ()
            rows = [(reader.line_num, row) for row in reader]  # a row and the line that it ends on
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is not a table in UTF-8 ({error}); save it as one") from None
    if not columns:
        raise BadInput(f"{path} is empty: its first line names the columns")
    for option, column in (("text", text), ("label", label)):
        if column not in columns:
            raise BadInput(f"{path} has no column {column}, it has {', '.join(columns)}; name one with --{option}")
    examples, splits = [], []
    for line, row in rows:
        if not split_words(row[text] or ""):
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


def make_classifier(make: Callable[..., torch.nn.Module], split: Split, layers: int, seed: int) -> Classifier:
    """A classifier that has learnt nothing yet; `make` is the student's `attention_classifier`."""
    torch.manual_seed(seed)
    vocabulary = tuple(sorted({word for row in split.train for word in split_words(row.text)}))
    sizes = SIZES | {"num_layers": layers}
    module = make(len(vocabulary) + 1, len(split.labels), **sizes, dropout=DROPOUT)
    return Classifier(module, sizes, vocabulary, split.labels)


def train_classifier(classifier: Classifier, split: Split, epochs: int) -> Iterator[float]:
    """Train in place, and give the accuracy on the held-out texts before the first epoch and after each.

    AdamW, with a learning rate that grows in the first steps and then falls to 0, in straight lines.
    """
    tokens, lengths, classes = _encode(classifier, split.train)
    parameters = classifier.module.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = epochs * math.ceil(len(tokens) / BATCH)
    schedule = LambdaLR(optimizer, lambda step: min(1.0, step / steps / WARM_UP) * (1.0 - step / steps))
    yield _measure_accuracy(classifier, split.held_out)
    for _ in range(epochs):
        for batch in torch.randperm(len(tokens)).split(BATCH):
            longest = int(lengths[batch].max())
            hidden = torch.rand(len(batch), longest) < HIDDEN_WORDS
            logits = classifier.module(tokens[batch, :longest].masked_fill(hidden, 0), lengths[batch])
            optimizer.zero_grad()
            cross_entropy(logits, classes[batch]).backward()
            optimizer.step()
            schedule.step()
        yield _measure_accuracy(classifier, split.held_out)


def _measure_accuracy(classifier: Classifier, rows: Sequence[LabelledText]) -> float:
    """The share of the rows whose label gets the largest logit."""
    tokens, lengths, classes = _encode(classifier, rows)
    classifier.module.eval()
    with torch.no_grad():
        right = classifier.module(tokens, lengths).argmax(dim=-1) == classes
    classifier.module.train()
    return right.double().mean().item()


def _encode(classifier: Classifier, rows: Sequence[LabelledText]) -> tuple[Tensor, Tensor, Tensor]:
    tokens, lengths = classifier.encode([row.text for row in rows])
    return tokens, lengths, torch.tensor([classifier.labels.index(row.label) for row in rows])
