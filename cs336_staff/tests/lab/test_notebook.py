"""The functions for notebooks, and the pages that show them: every Python block of these runs, as in a notebook."""

import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from torch.nn.functional import scaled_dot_product_attention

from cs336_kit.engine.room import load_room
from cs336_kit.lab import chunked_attention, compare, debug, flow, heatmap
from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.diagnosis import ADAPTER, PROBLEM
from cs336_kit.lab.student import Attention
from cs336_kit.lab.training import OURS, read_labelled_texts
from cs336_kit.lab.view import View
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tests.lab.test_debug import ATTENTION, attention_in
from cs336_staff.tools.student import ROOT

WEIGHTS = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]])


@pytest.fixture
def folder(lab: Lab, tmp_path: Path) -> Path:
    """A student's folder, in which a notebook runs."""
    assert lab("--help").exit_code == 0
    return tmp_path


def execute(cells: list[str]) -> list[NotebookNode]:
    """Run the cells of a notebook in this folder, one after the other, in a kernel as Jupyter starts it."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120).execute()
    return notebook.cells


def find_blocks(page: str) -> list[str]:
    """The Python of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


def find_views(cells: list[NotebookNode]) -> list[str]:
    """The text of every View that the cells show; what they print is not one, and one cell shows one."""
    outputs = [[output for output in cell.outputs if output.output_type != "stream"] for cell in cells]
    assert max(map(len, outputs)) == 1
    data = [output.data for (output,) in filter(None, outputs)]
    assert all(each["text/html"].startswith(("<pre", "<img")) for each in data)
    return [each["text/plain"] for each in data]


SETUP = """\
import torch
from cs336_kit.lab import compare, debug, flow, heatmap

attention = torch.nn.functional.scaled_dot_product_attention
Q, K, V = torch.randn(3, 2, 3, 4)
"""
# How many outputs each cell has.
OUTPUTS = {
    SETUP: 0,
    "heatmap(torch.eye(3), 'a b c')": 1,
    "debug(Q, K, V, attention=attention)": 1,
    "flow(length=2, attention=attention)": 1,
    "compare(attention=attention)": 1,
    "print(compare(attention=attention))": 1,
    "debug(Q, K, V, attention=attention).save('report.html')": 0,
    "debug(Q, K, V, attention=attention).save('again.txt')": 0,
    "from rich import print; print('text')": 1,  # rich knows where it is, and would show what it prints
}


@pytest.mark.slow
def test_the_page_on_notebooks_and_cells_that_have_one_output(lab: Lab, folder: Path) -> None:
    page = find_blocks("lab.md")
    cells = execute([*page, *OUTPUTS])  # in one kernel, which takes seconds to start
    assert {cell.source: len(cell.outputs) for cell in cells[len(page) :]} == OUTPUTS
    drawn, scored, report, measured, compared = find_views(cells[: len(page)])
    assert "columns: 0 the, 1 cat, 2 is, 3 asleep, 4 <pad>" in drawn
    assert "·" in drawn
    assert "rows ask, columns are looked at; scores; · hidden by the mask" in scored
    assert "Nothing here looks wrong." in report
    assert "Position 2 of the output, padding mask" in measured
    assert "On all 10 inputs your attention is PyTorch's to 1e-5" in compared
    assert "Nothing here looks wrong." in (folder / "report.txt").read_text(encoding="utf-8")
    assert "{{data}}" not in (folder / "head0.html").read_text(encoding="utf-8")
    assert "Nothing here looks wrong." in lab("debug", "call.safetensors").output


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_solutions_of_the_exercises(lab: Lab) -> None:
    assert len(find_views(execute(find_blocks("exercises.md")))) == 10
    assert "Nothing here looks wrong." in lab("debug", "call.safetensors").output
    page = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")
    exercises = page.split("\n## ")[1:]
    assert len(exercises) == 17
    for exercise in exercises:
        assert [exercise.count(part) for part in ("<summary>Hint<", "<summary>Solution<", "```python")] == [1] * 3
        assert "assert " in exercise


NOTEBOOK = ROOT / "docs/notebook.ipynb"


def read_outputs(cell: NotebookNode) -> tuple[list[str], list[float], int]:
    """The words, the numbers without those that are an error of rounding, and how many pictures there are."""
    text = re.sub(r"\d(\.\d+)?e[+-]\d+", "", "\n".join(output.data["text/plain"] for output in cell.outputs))
    number = r"-?\d+(?:\.\d+)?"
    pictures = sum(output.data["text/html"].count("data:image/png;base64,") for output in cell.outputs)
    return re.sub(number, "", text).split(), [float(x) for x in re.findall(number, text)], pictures


@pytest.mark.slow
def test_the_notebook_has_what_its_cells_show() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stored = [read_outputs(cell) for cell in cells]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    for cell, (words, numbers, pictures) in zip(cells, stored, strict=True):
        shown = read_outputs(cell)
        assert (words, pictures) == (shown[0], shown[2]), "run: uv run jupyter execute --inplace docs/notebook.ipynb"
        assert numbers == pytest.approx(shown[1], rel=1e-2, abs=1e-2)
    assert [pictures for *_, pictures in stored] == [0, 1, 1, 1, 0, 0, 1, 0]
    assert [len(cell.outputs) for cell in cells] == [0] + [1] * 7
    assert NOTEBOOK.stat().st_size < 1_000_000


def test_a_sentence_for_the_classifier_has_words_of_its_training() -> None:
    (sentence,) = re.findall(r"--classifier \S+ (.*)", (ROOT / "docs/lab.md").read_text(encoding="utf-8"))
    known = {word for row in read_labelled_texts(OURS, "text", "label", 0).train for word in row.text.split()}
    assert known >= set(sentence.split())


def test_commands_on_the_pages_exist() -> None:
    from cs336_kit.cli import cs336

    pages = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("lab.md", "exercises.md")]
    commands = re.findall(r"^uv run cs336 (\S+)([^#\n]*)", "\n".join(pages), re.MULTILINE)
    assert len(commands) > 20
    for name, rest in commands:
        command = cs336.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None, name
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)) <= options


def test_a_heatmap_of_a_text_on_another(tmp_path: Path) -> None:
    shown = heatmap(WEIGHTS.clone().requires_grad_(), "le chat", "the cat sat", values=True)
    rows = [line.split() for line in repr(shown).splitlines()]
    assert ["0", "le", "70", "20", "10"] in rows
    assert ["1", "chat", "0", "50", "50"] in rows
    assert "“chat” looks equally at all 2 it sees (50% each)" in repr(shown)
    assert shown._repr_html_().startswith("<img")
    shown.save(tmp_path / "map.svg")
    svg = (tmp_path / "map.svg").read_text()
    assert all(f">{word}</text>" in svg for word in ("le", "sat", "70", "50", "key (is looked at)", "query (asks)"))
    shown.save(tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == svg


def test_a_hidden_key_with_weight_is_told() -> None:
    mask = torch.tensor([[True, True, False], [False, True, True]])
    assert "Some tokens that the mask hides have weight" in repr(heatmap(WEIGHTS, "a b", "c d e", mask))
    assert "hidden by the mask" in repr(heatmap(WEIGHTS, "a b", "c d e", mask))


def test_hidden_cells_are_hatched(tmp_path: Path) -> None:
    even = torch.full((4, 4), 0.0)
    heatmap(even, "a b c d", mask=torch.eye(4) > 0).save(tmp_path / "hatched.png")
    heatmap(even, "a b c d").save(tmp_path / "plain.png")
    hatched, plain = (imread(tmp_path / f"{name}.png")[..., :3].mean() for name in ("hatched", "plain"))
    assert hatched < plain - 0.005


@pytest.mark.parametrize(
    ("weights", "names", "message"),
    [
        (WEIGHTS, ("a b",), "weights are for 3 keys, and there are 2 tokens to name them: name all keys"),
        (WEIGHTS, ("a b", "c d"), "weights are for 3 keys, and there are 2 tokens to name them: name all keys"),
        (WEIGHTS, ("a", "c d e"), "weights are for 2 queries, and there are 1 tokens to name them: name all queries"),
        ([], (), "weights have the shape (0,), expected (queries, keys) or (heads, queries, keys)"),
        ([WEIGHTS, WEIGHTS.T], (), "the maps have different shapes, (2, 3) and (3, 2)"),
        (np.zeros((4096, 4096)), (), "that is 16,777,216 weights, more than 10,000,000: draw a part of them, such as"),
        (torch.ones(3), ("a b c",), "weights have the shape (3,), expected (queries, keys) or (heads, queries, keys)"),
        (torch.ones(2, 1, 3, 3), ("a b c",), "weights have the shape (2, 1, 3, 3), expected (queries, keys) or (heads"),
        (WEIGHTS, ("a b", "c d e", torch.ones(2, 2)), "the mask has the shape (2, 2), the weights (2, 3): it should"),
    ],
)
def test_weights_that_do_not_fit(weights: Any, names: tuple, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        heatmap(weights, *names)
    assert raised.value.message.startswith(message)


def find_colours(path: Path) -> set[tuple[int, int, int]]:
    """The colours of the cells of the first map, read at their centres."""
    pixels = (imread(path)[..., :3] * 255).round().astype(int)
    return {tuple(colour) for colour in pixels.reshape(-1, 3).tolist()}


def test_the_same_weight_has_the_same_colour_in_every_figure(tmp_path: Path) -> None:
    for name, weights in (("even", torch.full((7, 7), 1 / 7)), ("sharp", torch.tensor([[1 / 7, 6 / 7]]))):
        heatmap(weights).save(tmp_path / f"{name}.png")
    light = (219, 226, 234)  # a seventh of the way from white
    assert all(
        any(max(abs(a - b) for a, b in zip(light, each, strict=True)) <= 2 for each in find_colours(tmp_path / file))
        for file in ("even.png", "sharp.png")
    )
    heatmap(torch.full((7, 7), 1 / 7), vmax=1 / 7).save(tmp_path / "even.png")
    assert (8, 48, 107) in find_colours(tmp_path / "even.png")


def test_numpy_numbers_without_names(tmp_path: Path) -> None:
    shown = heatmap(WEIGHTS.numpy())
    assert ["0", "70", "20", "10"] in [line.split() for line in repr(shown).splitlines()]
    assert repr(debug(*torch.eye(3)[None].repeat(3, 1, 1).numpy())).endswith("Nothing here looks wrong.")
    Q = torch.eye(3).numpy()
    assert chunked_attention(Q, Q, Q, Q > 0, chunk=2, attention=scaled_dot_product_attention).equal(torch.eye(3))


def test_several_maps_side_by_side(tmp_path: Path) -> None:
    shown = heatmap([WEIGHTS, 1 - WEIGHTS], "a b", "c d e", title="Two steps", titles=["before", "after $1"])
    assert repr(shown).splitlines()[0] == "Two steps"
    assert repr(shown).splitlines()[1].split() == ["before", "after", "$1"]
    shown.save(tmp_path / "maps.svg")
    svg = (tmp_path / "maps.svg").read_text()
    assert all(f">{text}</text>" in svg for text in ("Two steps", "before", "after $1", "100%"))
    with pytest.raises(BadInput, match="there are 1 titles for 2 maps"):
        heatmap([WEIGHTS, WEIGHTS], titles=["one"])


def read_figure(weights: Any, path: Path) -> str:
    """The text of the figure, without line breaks."""
    heatmap(weights).save(path)
    return " ".join(re.findall(r">([^<]+)</text>", path.read_text()))


def test_a_figure_says_what_is_wrong(tmp_path: Path) -> None:
    text = read_figure([[0.5, float("nan")], [0.5, 0.0]], tmp_path / "nan.svg")
    assert "Some numbers are NaN or infinite; `cs336 debug` tells where they come from." in text
    assert text.count("NaN or infinite") == 2  # once beside the colour
    text = read_figure([[0.5, -0.1]], tmp_path / "scores.svg")
    assert "Some weights are negative. If these are scores, draw them with scores=True." in text
    assert "The weights of a token should sum to 100%; yours sum to 40%." in text


def test_scores_have_a_middle_and_are_not_percentages(tmp_path: Path) -> None:
    scores = torch.tensor([[2.0, -torch.inf], [-0.01, -4.0]])
    shown = heatmap(scores, scores=True, values=True)
    assert [line.split() for line in repr(shown).splitlines()][1:4] == [
        ["0", "1"],
        ["0", "2.0", "·"],
        ["1", "0.0", "-4.0"],
    ]
    assert "sum to" not in repr(shown)
    shown.save(tmp_path / "scores.svg")
    svg = (tmp_path / "scores.svg").read_text()
    assert all(f">{text}</text>" in svg for text in ("2.0", "-4.0", "score", "hidden by the mask"))
    assert "%<" not in svg


def test_a_map_on_axes_of_ones_own(tmp_path: Path) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert heatmap(WEIGHTS, ax=right, title="mine", mask=WEIGHTS > 0) is None
    figure.savefig(tmp_path / "axes.svg")
    assert (right.get_title(), len(right.images), len(left.images)) == ("mine", 1, 0)
    with pytest.raises(BadInput, match="there are 2 maps, and ax has room for one"):
        heatmap([WEIGHTS, WEIGHTS], ax=left)


def changed(old: str, new: str) -> Attention:
    """The attention of the tests of `cs336 debug` with one thing changed."""
    assert old in ATTENTION
    return attention_in(ATTENTION.replace(old, new))


def test_a_function_of_ones_own() -> None:
    wrong = changed("dim=-1", "dim=-2")
    finding = load_room(PROBLEM).examinations[ADAPTER](wrong)[0]
    Q, K = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    shown = repr(debug(Q, K, K, attention=wrong)), repr(flow(length=4, attention=wrong)), repr(compare(attention=wrong))
    assert all(finding.question in " ".join(each.split()) for each in shown)
    assert "what you see is what your code does" in shown[1]
    assert "On 10 of 10 inputs your attention is not PyTorch's to 1e-5" in shown[2]


@pytest.mark.parametrize(
    ("old", "new", "differ"),
    [
        (
            ".nan_to_num()",
            "",
            "On 1 of 10 inputs your attention is not PyTorch's to 1e-5 (5e-3 in float16): empty row.",
        ),
        (
            "-math.inf",
            "-2.0",
            "On 5 of 10 inputs your attention is not PyTorch's to 1e-5 (5e-3 in float16): causal mask, random mask and",
        ),
        (
            "torch.softmax(scores, dim=-1)",
            "scores.exp() / scores.exp().sum(-1, True)",
            ": empty row, large scores and float16.",
        ),
        (".to(wide)", "", "On 1 of 10 inputs your attention is not PyTorch's to 1e-5 (5e-3 in float16): float16."),
        (
            "wide = ",
            "assert Q.shape[:-2] == K.shape[:-2]; wide = ",
            "not PyTorch's to 1e-5 (5e-3 in float16): shared",
        ),
        ("V.to(wide)", "V.to(wide).detach()", "They differ in the gradients alone."),
        (".to(Q.dtype)", ".to(Q.dtype).detach()", "They differ in the gradients alone."),
    ],
)
def test_compare_says_which_inputs_differ(old: str, new: str, differ: str) -> None:
    assert differ in " ".join(repr(compare(attention=changed(old, new))).split())


@pytest.mark.parametrize("arguments", [(), ("--seed", "1")])
def test_compare_with_right_attention(lab: Lab, arguments: tuple[str, ...]) -> None:
    result = lab("compare", *arguments)
    assert result.exit_code == 0
    said = "On all 10 inputs your attention is PyTorch's to 1e-5 (5e-3 in float16), gradients included."
    assert " ".join(result.output.split()).endswith(said)
    assert max(map(len, result.output.splitlines())) <= 80


def test_compare_ends_with_1_if_any_input_differs(lab: Lab) -> None:
    result = lab("compare", adapters=ATTENTION.replace(".nan_to_num()", ""))
    assert result.exit_code == 1
    result = lab("compare", adapters=ATTENTION.replace("wide =", "1 / 0; wide ="))
    assert (result.output.split(":")[:2], result.exit_code) == (["Error", " ZeroDivisionError"], 1)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    shown = View(["text"])
    with pytest.raises(BadInput, match=r"expected a file that ends in \.html or \.txt, got .*a\.png"):
        shown.save(tmp_path / "a.png")
    shown.save(tmp_path / "a.HTML")
    assert "text" in (tmp_path / "a.HTML").read_text()
