"""`cs336 show --classifier`: the heads of a classifier that was trained and saved."""

from pathlib import Path

import pytest
import torch

import adapters
from cs336_kit.lab.classifier_file import Classifier, save_classifier
from cs336_kit.lab.student import Student
from cs336_kit.lab.trained import Trained
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import ROOT

SIZES = {"d_model": 8, "num_heads": 2, "max_distance": 4}
VOCABULARY = ("the", "cat", "sat")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A classifier with random weights."""
    torch.manual_seed(0)
    module = adapters.attention_classifier(len(VOCABULARY) + 1, 2, **SIZES)
    save_classifier(tmp_path / "cats.safetensors", Classifier(module, SIZES, VOCABULARY, ("good", "bad")))
    return tmp_path / "cats.safetensors"


def test_its_heads_side_by_side_and_what_it_says(lab: Lab, file: Path) -> None:
    result = lab("show", "--classifier", str(file), "The cat sat under the zebra")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].split() == ["head", "0", "head", "1"]
    assert "“cat” looks" in result.output
    assert "The classifier says: " in result.output
    assert "Words that it did not see in training: under, zebra." in result.output


def test_the_weights_are_those_that_the_classifier_uses(file: Path) -> None:
    weights = Trained(file, Student(ROOT)).weights("the cat sat", causal=False)
    assert weights.shape == (1, 2, 3, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 3))
    assert not torch.allclose(weights, torch.full_like(weights, 1 / 3), atol=1e-4)


def test_a_causal_mask(file: Path) -> None:
    weights = Trained(file, Student(ROOT)).weights("the cat sat", causal=True)
    assert weights.triu(1).abs().max() == 0.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.safetensors", "there is no file gone.safetensors; `cs336 train` writes one"),
        ("adapters.py", "adapters.py is not a classifier, or is a damaged one; write it again with `cs336 train`"),
    ],
)
def test_a_file_that_is_none(lab: Lab, name: str, message: str) -> None:
    result = lab("show", "--classifier", name)
    assert result.output.startswith(f"Error: {message}")
    assert result.output.count("\n") == 1
    assert result.exit_code == 2


def test_another_number_of_heads(lab: Lab, file: Path) -> None:
    result = lab("show", "--classifier", str(file), "--head", "2")
    assert result.output == "Error: there is no head 2: choose one of 0, 1\n"
    assert result.exit_code == 2


def test_a_text_without_words(lab: Lab, file: Path) -> None:
    result = lab("show", "--classifier", str(file), "...")
    assert result.output == "Error: the text has no tokens: give at least one word\n"
    assert result.exit_code == 2
