"""Training an attention classifier."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from cs336_kit.lab.classifier_file import Classifier, words
from cs336_kit.lab.labelled_texts import LabelledText, Split

SIZES = {"d_model": 32, "num_heads": 2, "max_distance": 8}
DROPOUT = 0.1
# A word that is hidden now and then teaches what to do with words that were never seen.
HIDDEN_WORDS = 0.1
BATCH = 32
LEARNING_RATE = 1e-2
WARM_UP = 0.1  # of all steps
WEIGHT_DECAY = 0.2


@dataclass(frozen=True)
class Progress:
    """The progress after an epoch: the mean loss in it, and the share of the held-out texts that come out right."""

    epoch: int
    loss: float
    accuracy: float


def new_classifier(make: Callable[..., torch.nn.Module], split: Split, layers: int, seed: int) -> Classifier:
    """A classifier that has learnt nothing yet; `make` is the student's `attention_classifier`."""
    torch.manual_seed(seed)
    vocabulary = tuple(sorted({word for row in split.train for word in words(row.text)}))
    sizes = SIZES | {"num_layers": layers}
    module = make(len(vocabulary) + 1, len(split.labels), **sizes, dropout=DROPOUT)
    return Classifier(module, sizes, vocabulary, split.labels)


def train(classifier: Classifier, split: Split, epochs: int) -> Iterator[Progress]:
    """Train in place, and say how things stand before the first epoch and after each.

    AdamW, with a learning rate that grows in the first steps and then falls to 0, in straight lines.
    """
    tokens, lengths, classes = _encoded(classifier, split.train)
    parameters = classifier.module.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = epochs * math.ceil(len(tokens) / BATCH)
    schedule = LambdaLR(optimizer, lambda step: min(1.0, step / steps / WARM_UP) * (1.0 - step / steps))
    yield Progress(0, float("nan"), accuracy(classifier, split.held_out))
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(tokens)).split(BATCH):
            longest = int(lengths[batch].max())
            hidden = torch.rand(len(batch), longest) < HIDDEN_WORDS
            logits = classifier.module(tokens[batch, :longest].masked_fill(hidden, 0), lengths[batch])
            loss = cross_entropy(logits, classes[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        yield Progress(epoch, total / len(tokens), accuracy(classifier, split.held_out))


def accuracy(classifier: Classifier, rows: Sequence[LabelledText]) -> float:
    """The share of the rows whose label gets the largest logit."""
    tokens, lengths, classes = _encoded(classifier, rows)
    classifier.module.eval()
    with torch.no_grad():
        right = classifier.module(tokens, lengths).argmax(dim=-1) == classes
    classifier.module.train()
    return right.double().mean().item()


def _encoded(classifier: Classifier, rows: Sequence[LabelledText]) -> tuple[Tensor, Tensor, Tensor]:
    tokens, lengths = classifier.encode([row.text for row in rows])
    return tokens, lengths, torch.tensor([classifier.labels.index(row.label) for row in rows])
