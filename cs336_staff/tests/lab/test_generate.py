"""`cs336 train` on a text, and `cs336 generate`: what is learnt, written and measured, and what bad input gets."""

import re
from pathlib import Path

import pytest
import torch

import adapters
from cs336_kit.lab.generation import Written, describe_cache, find_difference, write, write_again
from cs336_kit.lab.language_model import (
    WINDOW,
    LanguageModel,
    load_language_model,
    save_language_model,
)
from cs336_kit.lab.text_training import make_language_model, read_sentences, train_language_model
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import ROOT

TEXT = "The cat sat on the mat. " * 100
ADAPTERS = (ROOT / "adapters.py").read_text()
FORGETS = f"{ADAPTERS}\nright = run_decoding\ndef run_decoding(*inputs):\n    return right(*inputs[:-2], None, None)\n"
UNWRITTEN = "def run_decoding(*_, **__):\n    raise NotImplementedError\n"


@pytest.fixture
def model(tmp_path: Path) -> LanguageModel:
    """A model with random weights, saved in language-model.safetensors."""
    made = make_language_model(adapters.run_decoding, TEXT, seed=0)
    save_language_model(tmp_path / "language-model.safetensors", made)
    return made


def test_it_learns_a_text_and_writes_it(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "cat.txt").write_text(TEXT)
    result = lab("train", "cat.txt", "--epochs", "20")
    assert result.exit_code == 0
    assert result.output.startswith("2,399 characters to learn from, 12 of them different\n")
    assert result.output.endswith("language-model.safetensors is written; `uv run cs336 generate` writes with it\n")
    result = lab("generate", "The cat", "--length", "60")
    assert result.exit_code == 0
    text, _, measured = result.output.splitlines()
    assert text == TEXT[:67]
    assert re.fullmatch(
        r"With your cache, 60 characters took \d+\.\d\d s\. Computing the whole sequence again for each of them took "
        r"\d+\.\d\d s, \d+\.\d times as long\.",
        measured,
    )


@pytest.mark.slow
@pytest.mark.soak
def test_it_learns_the_pages_of_the_handout() -> None:
    text = read_sentences(ROOT / "docs")
    *_, last = train_language_model(make_language_model(adapters.run_decoding, text, seed=0), text, epochs=24)
    assert last < 1.0


def test_only_sentences_are_read(tmp_path: Path) -> None:
    sentence = "It reads [a page](page.md) *slowly*, `as` people do. "
    blocks = (
        "# A title",
        "<!-- nothing -->",
        sentence * 60,
        "```sh\nuv run\n```",
        "| a | b |",
        "- One\n  item.",
        "$x$ is 1.",
    )
    (tmp_path / "page.md").write_text("\n\n".join(blocks))
    assert read_sentences(tmp_path) == "It reads a page slowly, as people do. " * 60 + "One item."


def test_the_cache_makes_no_difference(model: LanguageModel) -> None:
    length = 2 * WINDOW
    cached = write(model, "The", length, 3)
    assert find_difference(cached, write_again(model, cached)) is None
    assert write(model, "The", length, 4).text != cached.text


def test_a_step_with_the_cache_reads_one_character() -> None:
    lengths = []

    def decode(*inputs):
        lengths.append(inputs[10].shape[-2])
        return adapters.run_decoding(*inputs)

    write(make_language_model(decode, TEXT, seed=0), "The", 2, 0)
    assert lengths == [3, 3, 1, 1, 1, 1]  # of two layers


def test_what_is_measured_is_said_as_a_ratio() -> None:
    logits = torch.ones(2, 3)
    cached, whole = Written("abc", logits, 0.5), Written("abc", logits + 1e-6, 1.25)
    assert describe_cache(cached, whole, find_difference(cached, whole)) == (
        "With your cache, 2 characters took 0.50 s. Computing the whole sequence again for each of them took 1.25 s, "
        "2.5 times as long."
    )


def test_saved_and_read_it_is_the_same(model: LanguageModel, tmp_path: Path) -> None:
    again = load_language_model(tmp_path / "language-model.safetensors", adapters.run_decoding)
    tokens = model.encode("The cat")
    assert torch.equal(again(tokens)[0], model(tokens)[0])


@pytest.mark.usefixtures("model")
def test_a_cache_that_is_not_used_is_found(lab: Lab) -> None:
    result = lab("generate", "The", adapters=FORGETS)
    assert result.exit_code == 1
    assert re.search(
        r"\nComputed without the cache, the logits for character \d+ are different\. They should be the same: "
        r"`uv run pytest -k test_decoding` says what is wrong\.\n$",
        result.output,
    )


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", [("train", "cat.txt"), ("generate", "The")], ids=" ".join)
def test_decoding_that_is_not_written(lab: Lab, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "cat.txt").write_text(TEXT)
    result = lab(*command, adapters=UNWRITTEN)
    assert result.exit_code == 1
    assert "Error: not implemented yet: write run_decoding in adapters.py" in result.output


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ("inputs[10]", "run_decoding should return the answer, and the keys and values of the cache"),
        ("inputs[10][0], None, None", "the answer has shape (96,), expected (3, 96)"),
    ],
)
def test_decoding_that_returns_something_else(lab: Lab, returns: str, message: str) -> None:
    result = lab("generate", "The", adapters=f"def run_decoding(*inputs):\n    return {returns}\n")
    assert result.exit_code == 1
    assert message in result.output
