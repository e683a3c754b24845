"""The pages and the notebook: every Python block runs in a kernel, every command exists, every output is real."""

import re
from pathlib import Path

import click
import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from staff.tests.lab.conftest import Lab
from staff.tools.student import ROOT
from whichline.cli import main as cs336

NOTEBOOK = ROOT / "docs/notebook.ipynb"
NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"  # 9e-08 is one: what is left of rounding differs between processors


@pytest.fixture
def folder(lab: Lab, tmp_path: Path) -> Path:
    """A student's folder, in which a notebook runs."""
    assert lab("--help").exit_code == 0
    return tmp_path


def run_page(page: str, folder: Path) -> list[str]:
    """Run the Python of a page, block by block, in a kernel as Jupyter starts it; the text that it shows."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    notebook = new_notebook(cells=[new_code_cell(block) for block in blocks])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [text for cell in notebook.cells for text in read_texts(cell)]


def read_texts(cell: NotebookNode) -> list[str]:
    """The text of all outputs of a cell, without what makes it bold."""
    outputs = (output for output in cell.outputs if output.get("name") != "stderr")
    texts = (output.get("text") or output["data"]["text/plain"] for output in outputs)
    return [re.sub(r"\x1b\[[\d;]*m", "", text) for text in texts]


@pytest.mark.nightly
def test_the_page_on_the_lab(lab: Lab, folder: Path) -> None:
    drawn, scored, printed, report, compared = run_page("lab.md", folder)
    assert "columns: 0 the, 1 cat, 2 is, 3 asleep, 4 <pad>" in drawn
    assert drawn == printed.rstrip()
    assert "columns are keys; scores; · hidden by the mask" in scored
    assert "Nothing here looks wrong." in report
    assert "On all 10 inputs your attention agrees with PyTorch's" in compared
    assert (folder / "weights.png").stat().st_size > 1000
    assert "Nothing here looks wrong." in lab("debug", "call.safetensors").output
    assert lab("show", "call.safetensors", "-o", "weights.png").exit_code == 0


def save_model(folder: Path) -> None:
    """A small model with large random weights, in place of the one that the exercise has students download."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(vocab_size=8, n_embd=16, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    model.save_pretrained(folder)
    words = {word: place for place, word in enumerate(["The", "bank", "of", "the", "river", "was", "steep", "?"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


@pytest.mark.nightly
def test_the_solutions_of_the_exercises(lab: Lab, folder: Path) -> None:
    save_model(folder / "distilgpt2")
    said = "\n".join(run_page("exercises.md", folder))
    right, of, share = re.findall(r"(\d+) of (\d+) held-out sentences right: ([\d.]+)%", said)[0]
    assert float(share) == pytest.approx(100 * int(right) / int(of), abs=0.1)
    assert int(of) > 50
    assert (folder / "layer.png").stat().st_size > 1000
    assert "Nothing here looks wrong." in lab("debug", "call.safetensors").output
    exercises = (ROOT / "docs/exercises.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(exercises) == 19
    for exercise in exercises:
        assert [exercise.count(part) for part in ("<summary>Hint<", "<summary>Solution<", "```python")] == [1] * 3
        assert "assert " in exercise


@pytest.mark.nightly
def test_the_notebook_has_what_its_cells_show() -> None:
    def split(cell: NotebookNode) -> tuple[str, list[float], int]:
        """The words, the numbers, and how many pictures there are."""
        text = re.sub(r"\d+e-\d+", "", "\n".join(read_texts(cell)))  # what rounding leaves differs between processors
        pictures = sum("image/png" in output.get("data", {}) for output in cell.outputs)
        return re.sub(NUMBER, "", text), [float(x) for x in re.findall(NUMBER, text)], pictures

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stored = [split(cell) for cell in cells]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    for cell, (words, numbers, pictures) in zip(cells, stored, strict=True):
        shown = split(cell)
        assert (words, pictures) == (shown[0], shown[2]), "run: uv run jupyter execute --inplace docs/notebook.ipynb"
        assert numbers == pytest.approx(shown[1], rel=1e-2, abs=1e-2)
    assert [pictures for *_, pictures in stored] == [0, 1, 1, 1, 0, 0, 1, 0, 0]
    assert NOTEBOOK.stat().st_size < 500_000


def test_commands_on_the_pages_exist() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")]
    commands = re.findall(r"^uv run cs336 (\S+)([^#\n]*)", "\n".join(pages), re.MULTILINE)
    assert len(commands) > 20
    for name, rest in commands:
        command = cs336.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None, name
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)) <= options
    texts = (*ROOT.glob("packages/grader/whichline_grader/docs/*.md"), ROOT / "README.md")
    pages += [path.read_text(encoding="utf-8") for path in texts]
    named = re.findall(r"`(?:uv run )?cs336 ([a-z-]+)", "\n".join(pages))
    assert {*named} <= {*cs336.list_commands(click.Context(cs336))}
