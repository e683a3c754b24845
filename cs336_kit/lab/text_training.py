"""Training a language model on the sentences of texts."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from cs336_kit.lab.bad_input import BadInput, reject_unreadable
from cs336_kit.lab.language_model import Decode, LanguageModel

SUFFIXES = (".md", ".txt")
LEAST = 2_000  # characters; from fewer there is little to learn
# What Markdown has beside sentences: blocks of code, comments, where links lead to, and marks around words.
NO_TEXT = re.compile(r"```.*?```|<!--.*?-->|(?<=\])\([^)]*\)|[*`\[\]]|^- ", re.DOTALL | re.MULTILINE)
NO_SENTENCE = re.compile(r"[$|<>#_/{}=]|^\d")

BATCH, LENGTH = 16, 64
LEARNING_RATE, WARM_UP = 5e-3, 0.05  # the second of all steps


def read_sentences(path: Path) -> str:
    """Read the sentences of a text, or of all texts in a folder, one behind the other.

    Raises:
        BadInput: something cannot be read, or there is too little to learn from.
    """
    paths = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES) if path.is_dir() else [path]
    sentences = []
    for each in paths:
        try:
            with reject_unreadable(each):
                text = NO_TEXT.sub("", each.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise BadInput(f"{each} is not a text in UTF-8 ({error}); save it as one") from None
        for paragraph in re.split(r"\n\s*\n", text):
            sentences += re.split(r"(?<=[.!?:]) +", " ".join(paragraph.split()))
    written = " ".join(each for each in sentences if each and not NO_SENTENCE.search(each))
    if len(written) < LEAST:
        raise BadInput(f"{path} has {len(written):,} characters in sentences, expected at least {LEAST:,}")
    return written


def make_language_model(decode: Decode, text: str, seed: int) -> LanguageModel:
    """A language model of the characters in a text, which has learnt nothing yet."""
    torch.manual_seed(seed)
    return LanguageModel(decode, "".join(sorted(set(text))))


def train_language_model(model: LanguageModel, text: str, epochs: int) -> Iterator[float]:
    """Train in place; after each epoch, give the mean loss of its steps: the cross-entropy of the next character."""
    tokens = model.encode(text)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    each = math.ceil(len(tokens) / BATCH / LENGTH)
    steps = epochs * each
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / steps / WARM_UP) * (1.0 - step / steps))
    for _ in range(epochs):
        losses = 0.0
        for _ in range(each):
            starts = torch.randint(len(tokens) - LENGTH, (BATCH, 1))
            batch = tokens[starts + torch.arange(LENGTH + 1)]
            logits, _ = model(batch[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses += float(loss.detach())
        yield losses / each
