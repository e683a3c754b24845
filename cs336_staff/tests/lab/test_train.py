"""`cs336 train`, and `cs336 show --classifier`: what is learnt, saved and shown, and what they say of bad input."""

import csv
import json
import re
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

import adapters
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.classifier import METADATA, Classifier, load_classifier, save_classifier, split_words
from cs336_kit.lab.training import OURS, Split, make_classifier, read_labelled_texts
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.sentences import TEMPLATES, THINGS, sentences

ROWS = "text,label\n" + "".join(f"the {word} was {label},{label}\n" for word in "abcde" for label in ("good", "bad"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


@pytest.fixture
def ours() -> Split:
    return read_labelled_texts(OURS, "text", "label", seed=0)


def test_the_sentences_are_those_that_the_script_writes() -> None:
    with OURS.open(encoding="utf-8", newline="") as file:
        assert [tuple(row) for row in csv.reader(file, delimiter="\t")] == [("text", "label", "split"), *sentences()]


def test_no_template_is_shared() -> None:
    assert not set(TEMPLATES["train"]) & set(TEMPLATES["held-out"])
    assert len({template for part in TEMPLATES.values() for template in part}) == sum(map(len, TEMPLATES.values()))


def test_no_word_tells_the_label(ours: Split) -> None:
    """Of the held-out sentences in which a word occurs, nearly as many have the one label as the other."""
    for word in {word for row in ours.held_out for word in split_words(row.text)} - set(THINGS):
        labels = [row.label for row in ours.held_out if word in split_words(row.text)]
        if len(labels) >= 32:
            assert 0.35 <= labels.count("positive") / len(labels) <= 0.65, word


def test_counting_words_does_not_learn_it(ours: Split) -> None:
    """Logistic regression on which words occur: a coin does as well. So attention to more than one word is needed."""
    vocabulary = sorted({word for row in ours.train for word in split_words(row.text)})

    def counted(rows) -> tuple[torch.Tensor, torch.Tensor]:
        counts = [[float(split_words(row.text).count(word)) for word in vocabulary] for row in rows]
        return torch.tensor(counts), torch.tensor([float(row.label == "positive") for row in rows])

    torch.manual_seed(0)
    model = torch.nn.Linear(len(vocabulary), 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    counts, labels = counted(ours.train)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(counts)[:, 0], labels).backward()
        optimizer.step()
    counts, labels = counted(ours.held_out)
    assert ((model(counts)[:, 0] > 0) == (labels > 0)).double().mean() < 0.6


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_at_least_80_percent_of_the_held_out_sentences(lab: Lab, seed: int) -> None:
    began = time.process_time()
    result = lab("train", "--seed", str(seed))
    assert time.process_time() - began < 60
    assert result.exit_code == 0
    assert result.output.endswith("classifier.safetensors is written\n")
    right = int(result.output.split("Held-out accuracy ")[1].split(": ")[1].split(" of ")[0])
    assert right >= 0.8 * 128


def test_a_table_of_ones_own(lab: Lab, data: Path, tmp_path: Path) -> None:
    result = lab("train", str(data), "--epochs", "2", "-o", "mine.safetensors")
    assert result.exit_code == 0
    assert "8 texts to learn from, 2 held out" in result.output
    classifier = load_classifier(tmp_path / "mine.safetensors", adapters.attention_classifier)
    assert classifier.labels == ("bad", "good")
    assert set(classifier.vocabulary) <= {"the", "was", "good", "bad", *"abcde"}
    tokens, lengths = classifier.encode(["the a was good", "unseen"])
    assert lengths.tolist() == [4, 1]
    assert tokens[1].tolist() == [0, 0, 0, 0]
    assert classifier.module(tokens, lengths).shape == (2, 2)
    assert classifier.module.attention_weights(tokens, lengths).shape == (2, 1, 2, 4, 4)


def test_the_same_seed_gives_the_same_file(lab: Lab, data: Path, tmp_path: Path) -> None:
    saved = []
    for seed in (0, 0, 1):
        lab("train", str(data), "--epochs", "2", "--seed", str(seed))
        saved.append((tmp_path / "classifier.safetensors").read_bytes())
    assert saved[0] == saved[1] != saved[2]


def test_the_animation_has_a_frame_for_each_epoch(lab: Lab, data: Path, tmp_path: Path) -> None:
    data.write_text(ROWS.replace("was", "$was$"))
    result = lab("train", str(data), "--epochs", "3", "--animate", "out.gif")
    assert re.search(r"out\.gif shows “the [a-e] \$was\$ (good|bad)”", result.output)
    with Image.open(tmp_path / "out.gif") as gif:
        assert getattr(gif, "n_frames", 1) == 4
        assert max(gif.size) < 1000


def test_the_file_holds_no_code(tmp_path: Path, ours: Split) -> None:
    classifier = make_classifier(adapters.attention_classifier, ours, layers=1, seed=0)
    save_classifier(tmp_path / "a.safetensors", classifier)
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        metadata = json.loads(file.metadata()[METADATA])
    assert metadata["labels"] == ["negative", "positive"]
    assert metadata["sizes"] == {"d_model": 32, "num_heads": 2, "max_distance": 8, "num_layers": 1}
    again = load_classifier(tmp_path / "a.safetensors", adapters.attention_classifier)
    encoded = again.encode(["the soup was good"])
    assert torch.equal(again.module(*encoded), classifier.module.eval()(*encoded))
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_a_linear_layer_that_is_not_written(lab: Lab, data: Path) -> None:
    result = lab("train", str(data), adapters="def attention_classifier(*_, **__):\n    raise NotImplementedError\n")
    assert result.exit_code == 1
    assert "Error: not implemented yet: write attention_classifier in adapters.py" in result.output


def test_a_classifier_of_another_shape(tmp_path: Path, ours: Split) -> None:
    path = tmp_path / "a.safetensors"
    classifier = make_classifier(adapters.attention_classifier, ours, layers=1, seed=0)
    parts = {"sizes": {"d_model": 16, "num_heads": 2, "max_distance": 8}, "labels": ["a", "b"]}
    metadata = {METADATA: json.dumps(parts | {"vocabulary": classifier.vocabulary})}
    save_file(classifier.module.state_dict(), path, metadata)
    with pytest.raises(BadInput) as raised:
        load_classifier(path, adapters.attention_classifier)
    assert raised.value.message.startswith(f"{path} does not fit attention_classifier (size mismatch for ")
    assert raised.value.message.endswith("; train it again with `cs336 train`")
    assert "\n" not in raised.value.message


@pytest.fixture
def cats(tmp_path: Path) -> Classifier:
    """A classifier with random weights, saved in cats.safetensors."""
    torch.manual_seed(0)
    sizes, vocabulary = {"d_model": 8, "num_heads": 2, "max_distance": 4}, ("the", "cat", "sat")
    module = adapters.attention_classifier(len(vocabulary) + 1, 2, **sizes)
    save_classifier(tmp_path / "cats.safetensors", Classifier(module, sizes, vocabulary, ("good", "bad")))
    return load_classifier(tmp_path / "cats.safetensors", adapters.attention_classifier)


@pytest.mark.usefixtures("cats")
def test_its_heads_side_by_side_and_what_it_says(lab: Lab) -> None:
    result = lab("show", "--classifier", "cats.safetensors", "The cat sat under the zebra")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].split() == ["head", "0", "head", "1"]
    assert "“cat” looks" in result.output
    assert "The classifier says: " in result.output
    assert "Words that it did not see in training: under, zebra." in result.output


def test_the_weights_are_those_that_the_classifier_uses(cats: Classifier) -> None:
    weights = cats.weights("the cat sat")
    assert weights.shape == (1, 2, 3, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 3))
    assert not torch.allclose(weights, torch.full_like(weights, 1 / 3), atol=1e-4)
    assert cats.weights("the cat sat", torch.ones(3, 3).tril().bool()).triu(1).abs().max() == 0.0
