"""A trained classifier, and as one file: the weights as safetensors, and in its metadata what is needed to use them.

Nothing in the file is ever run: to read one is to read tensors and JSON.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cs336_kit.engine.compare import check_shape
from cs336_kit.lab.bad_input import BadInput, reject_unreadable, reject_unwritable

METADATA = "cs336 classifier"


@dataclass(frozen=True)
class Classifier:
    """An AttentionClassifier, with what its numbers stand for; it looks both ways.

    Its module is the student's: call what uses it within `Student.in_words()`.

    Args:
        module: called with tokens (batch, sequence) and lengths (batch), it gives logits (batch, class), and its
            `attention_weights` of the same gives weights (batch, layer, head, query, key).
        sizes: what the module was made with, beside the sizes of the vocabulary and of the labels.
        vocabulary: the word that each token above 0 stands for; 0 is any word that is not in it, and the padding.
        labels: the name of each class.
    """

    module: Any
    sizes: dict[str, int]
    vocabulary: tuple[str, ...]
    labels: tuple[str, ...]

    causal = False

    @property
    def layers(self) -> int:
        """The number of blocks of attention."""
        return self.sizes.get("num_layers", 1)

    @property
    def heads(self) -> list[str]:
        """The names of the heads, the same in each block."""
        return [str(head) for head in range(self.sizes["num_heads"])]

    def tokens(self, text: str) -> list[str]:
        """The words of a text in small letters: what the classifier reads of it."""
        return split_words(text)

    def notes(self, text: str) -> list[str]:
        """The label that the classifier gives, and the words that it has never seen."""
        with torch.no_grad():
            probabilities = self.module(*self.encode([text]))[0].softmax(dim=-1)
        label = self.labels[int(probabilities.argmax())]
        notes = [f"The classifier says: {label} ({float(probabilities.amax()):.0%})."]
        unseen = dict.fromkeys(word for word in split_words(text) if word not in self.vocabulary)
        return [*notes, f"Words that it did not see in training: {', '.join(unseen)}."] if unseen else notes

    def weights(
        self, text: str, mask: Bool[Tensor, "queries keys"] | None = None
    ) -> Float[Tensor, "layers heads queries keys"]:
        """The weights of each head."""
        tokens, lengths = self.encode([text])
        with torch.no_grad():
            weights = self.module.attention_weights(tokens, lengths, mask)
        check_shape(weights, (1, self.layers, len(self.heads), tokens.shape[1], tokens.shape[1]))
        return weights[0]

    def encode(self, texts: Sequence[str]) -> tuple[Int[Tensor, "batch sequence"], Int[Tensor, " batch"]]:
        """The tokens of each text, padded at the end, and how many there are."""
        numbers = {word: number for number, word in enumerate(self.vocabulary, start=1)}
        rows = [torch.tensor([numbers.get(word, 0) for word in split_words(text)], dtype=torch.long) for text in texts]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def split_words(text: str) -> list[str]:
    """The words of a text in small letters."""
    return re.findall(r"\w+(?:['’]\w+)*", text.lower())


def save_classifier(path: Path, classifier: Classifier) -> None:
    """Write the file, whole or not at all; what was there is replaced.

    Raises:
        BadInput: it cannot be written.
    """
    parts = {"sizes": classifier.sizes, "vocabulary": classifier.vocabulary, "labels": classifier.labels}
    write_whole(path, classifier.module, {METADATA: json.dumps(parts)})


def write_whole(path: Path, module: Any, metadata: dict[str, str]) -> None:
    """Write the weights of a module and what else is needed to use them; BadInput if that is not possible."""
    tensors = {name: x.contiguous() for name, x in module.state_dict().items()}
    part = path.with_name(f".{path.name}.part")
    with reject_unwritable(path):
        part.write_bytes(save(tensors, metadata))
        part.replace(path)


def load_classifier(path: Path, make: Callable[..., Any]) -> Classifier:
    """Read the file.

    Args:
        path: of the file.
        make: the student's `attention_classifier`, whose NotImplementedError goes through.

    Raises:
        BadInput: it is missing or damaged, is not a classifier, or does not have the shape that `make` gives.
    """
    if not path.is_file():
        raise BadInput(f"there is no file {path}; `cs336 train` writes one")
    try:
        with reject_unreadable(path), safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})[METADATA])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        sizes = {str(name): int(size) for name, size in metadata["sizes"].items()}
        vocabulary, labels = (tuple(map(str, metadata[key])) for key in ("vocabulary", "labels"))
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(f"{path} is not a classifier, or is a damaged one; write it again with `cs336 train`") from None
    try:
        # On the meta device the module takes no memory, whatever sizes a file may claim.
        with torch.device("meta"):
            module = make(len(vocabulary) + 1, len(labels), **sizes)
        module.load_state_dict(tensors, assign=True)
    except NotImplementedError:
        raise
    except (RuntimeError, TypeError, ValueError, ArithmeticError) as error:
        what = str(error).splitlines()[-1].strip()
        raise BadInput(
            f"{path} does not fit attention_classifier ({what}); train it again with `cs336 train`"
        ) from None
    return Classifier(module.eval(), sizes, vocabulary, labels)
