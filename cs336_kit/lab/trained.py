"""A classifier that `cs336 train` saved: its own words, and the attention of its blocks."""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from cs336_kit.engine.compare import check_shape
from cs336_kit.lab.classifier_file import load_classifier, words
from cs336_kit.lab.source import causal_mask
from cs336_kit.lab.student import Student


class Trained:
    """A classifier of texts, which looks both ways.

    Args:
        path: what `cs336 train` saved.
        student: whose attention runs in it.

    Raises:
        BadInput: the file cannot be used.
    """

    causal = False

    def __init__(self, path: Path, student: Student) -> None:
        self._student = student
        with student.in_words():
            self._classifier = load_classifier(path, student.adapters.attention_classifier)
        self.layers = self._classifier.sizes.get("num_layers", 1)
        self.heads = [str(head) for head in range(self._classifier.sizes["num_heads"])]

    def tokens(self, text: str) -> list[str]:
        """The words in small letters, as the classifier reads them."""
        return words(text)

    def notes(self, text: str) -> list[str]:
        """The label that the classifier gives, and the words that it has never seen."""
        with self._student.in_words(), torch.no_grad():
            logits = self._classifier.module(*self._classifier.encode([text]))[0]
        probabilities = logits.softmax(dim=-1)
        label = self._classifier.labels[int(probabilities.argmax())]
        notes = [f"The classifier says: {label} ({float(probabilities.amax()):.0%})."]
        unseen = dict.fromkeys(word for word in words(text) if word not in self._classifier.vocabulary)
        return [*notes, f"Words that it did not see in training: {', '.join(unseen)}."] if unseen else notes

    def weights(self, text: str, causal: bool) -> Float[Tensor, "layers heads queries keys"]:
        """The weights of each head: with a causal mask, or with none."""
        tokens, lengths = self._classifier.encode([text])
        mask = causal_mask(tokens.shape[1]) if causal else None
        with self._student.in_words(), torch.no_grad():
            weights = self._classifier.module.attention_weights(tokens, lengths, mask)
            check_shape(weights, (1, self.layers, len(self.heads), tokens.shape[1], tokens.shape[1]))
        return weights[0]
