"""What the lab's commands say of bad input: one line and status 2, and nothing is written."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import adapters
from cs336_kit.lab.classifier import save_classifier
from cs336_kit.lab.language_model import LONGEST, save_language_model
from cs336_kit.lab.text_training import make_language_model
from cs336_kit.lab.training import make_classifier, read_labelled_texts
from cs336_staff.tests.files import files_in
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import ROOT

TEXTS: dict[str, str | bytes] = {
    "columns.csv": "a,b\n1,2\n",
    "empty.csv": "",
    "few.csv": "text,label\na,b\nc,d\n",
    "labels.csv": "text,b\n1,2\n",
    "latin.csv": b"text,label\n\xff,b\n",
    "latin.txt": b"\xff",
    "nothing.csv": "text,label\na\n",
    "old.html": "mine",
    "rows.csv": "text,label\n" + "".join(f"the {x} was {y},{y}\n" for x in "abcde" for y in ("good", "bad")),
    "short.txt": "It sits.",
    "splits.csv": "text,label,split\na,b,test\n",
    "words.csv": "text,label\n?!,2\n",
}
OLD = ("-o", "old.html")
DAMAGED = "is not a classifier, or is a damaged one; write it again with `cs336 train`\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which commands are refused: texts, tables, models and what is none."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copy(ROOT / "adapters.py", folder)
    (folder / "folder.png").mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    save_file({"K": torch.ones(2, 2), "x": torch.ones(2)}, folder / "other.safetensors")
    torch.save({"Q": torch.ones(2, 2)}, folder / "pickled.pt")
    model = make_language_model(adapters.run_decoding, "The cat sat on the mat. " * 100, seed=0)
    save_language_model(folder / "language-model.safetensors", model)
    rows = read_labelled_texts(folder / "rows.csv", "text", "label", seed=0)
    classifier = make_classifier(adapters.attention_classifier, rows, layers=1, seed=0)
    save_classifier(folder / "classifier.safetensors", classifier)
    return folder


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench -o bench.txt", "expected a file that ends in .csv or .png or .svg, got bench.txt\n"),
        ("bench -o no/a.csv", "there is no folder no; make it, or name another file than no/a.csv\n"),
        (
            "bench --device cuda",
            "PyTorch finds no GPU here (torch.cuda.is_available() is False): leave --device out\n",
        ),
        ("debug other.safetensors --case attention/3d-causal", "give either FILE or --case NAME"),
        ("debug gone.safetensors", "cannot read gone.safetensors: No such file or directory"),
        ("debug .", "cannot read .: "),
        ("debug adapters.py", "adapters.py is not a safetensors file ("),
        ("debug pickled.pt", "pickled.pt is not a safetensors file ("),  # and so nothing is unpickled
        (
            "debug other.safetensors",
            "other.safetensors lacks Q and V, it has K, x: a call of attention is Q, K, V and, if",
        ),
        (
            "debug --case attention/3d-casual",
            "there is no case attention/3d-casual: is it one of attention/3d-causal, ",
        ),
        ("debug --case softmax/3d", "there is no case softmax/3d: is it one of attention"),
        ("debug --case softmax/1d", "softmax/1d lacks Q and K and V, it has in_features, dim: a call of attention is"),
        ("flow --query 8", "there is no position 8: choose one from 0 to 7\n"),
        ("flow -o flow.pdf", "expected a file that ends in .png or .svg, got flow.pdf\n"),
        ("flow -o not/flow.png", "there is no folder not; make it, or name another file than not/flow.png\n"),
        ("flow -o folder.png", "folder.png is a folder; name a file\n"),
        (("generate", "The dog"), "'d' is not in the text that the model was trained on; leave it out"),
        (("generate", ""), "expected at least one character to go on from"),
        (f"generate The --length {LONGEST}", "the model reads and writes 2,048 characters at most, got 2,051"),
        (
            "generate --model no.safetensors",
            "there is no file no.safetensors; `uv run cs336 train docs` writes one",
        ),
        (
            "generate --model adapters.py",
            "adapters.py is not a language model, or is a damaged one; write it again with `uv run cs336 train docs`",
        ),
        (("show", "", *OLD), "the text has no tokens: give at least one word"),
        (("show", "cat", "--file", "old.html", *OLD), "give either TEXT or --file"),
        (("show", "--head", "7", *OLD), "there is no head 7: choose one of grammar, meaning, sound"),
        (("show", "--layer", "1", *OLD), "there is no layer 1: choose one from 0 to 0"),
        (("show", "--layer", "-1", *OLD), "there is no layer -1: choose one from 0 to 0"),
        (
            ("show", "--model", "gone", *OLD),
            "gone is not a folder with a config.json: give one that save_pretrained() wrote",
        ),
        (("show", "--model", "a", "--classifier", "b", *OLD), "give either --classifier or --model"),
        ("show -o figure.gif", "expected a file that ends in .png or .svg or .html, got figure.gif"),
        ("show -o gone/a.png", "there is no folder gone; make it, or name another file than gone/a.png"),
        (
            ("show", *["cat"] * 4000, "--head", "sound", *OLD),
            "that is 32,000,000 weights, more than 10,000,000: choose a --layer",
        ),
        ("show --classifier gone.safetensors", "there is no file gone.safetensors; `cs336 train` writes one\n"),
        ("show --classifier adapters.py", f"adapters.py {DAMAGED}"),
        ("show --classifier other.safetensors", f"other.safetensors {DAMAGED}"),
        ("show --classifier classifier.safetensors --head 2", "there is no head 2: choose one of 0, 1\n"),
        ("show --classifier classifier.safetensors ...", "the text has no tokens: give at least one word\n"),
        ("train short.txt", "short.txt has 8 characters in sentences, expected at least 2,000"),
        ("train latin.txt", "latin.txt is not a text in UTF-8"),
        ("train no.md", "cannot read no.md: No such file or directory"),
        ("train short.txt -o model.pt", "expected a file that ends in .safetensors, got model.pt"),
        (
            "train short.txt --layers 2",
            "--layers is for a table: leave it out, or give a .csv or .tsv in place of short.txt",
        ),
        ("train no.csv", "cannot read no.csv: No such file or directory"),
        ("train adapters.py", "expected a file that ends in .csv or .tsv, got adapters.py"),
        ("train empty.csv", "empty.csv is empty: its first line names the columns"),
        ("train columns.csv", "columns.csv has no column text, it has a, b; name one with --text"),
        ("train labels.csv", "labels.csv has no column label, it has text, b; name one with --label"),
        ("train words.csv", "words.csv, line 2: no word in the column text; write one or take the line out"),
        ("train nothing.csv", "nothing.csv, line 2: nothing in the column label; write one or take the line out"),
        ("train splits.csv", "splits.csv, line 2: expected train or held-out in the column split"),
        (
            "train few.csv",
            "few.csv has too few rows: expected two labels to learn, and at least one row to",
        ),
        ("train latin.csv", "latin.csv is not a table in UTF-8"),
        ("train rows.csv -o model.pt", "expected a file that ends in .safetensors, got model.pt"),
        (
            "train rows.csv -o no/model.safetensors",
            "there is no folder no; make it, or name another file than no/model",
        ),
        ("train rows.csv --animate out.png", "expected a file that ends in .gif, got out.png"),
    ],
)
def test_bad_input(
    lab: Lab,
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str | tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of adapters.py, beside it
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    result = lab(*(command.split() if isinstance(command, str) else command))
    assert result.output.startswith(f"Error: {message}")
    assert (result.output.count("\n"), result.exit_code) == (1, 2)
    assert files_in(tmp_path) == files_in(files) | {"assignment.toml": (ROOT / "assignment.toml").read_bytes()}
