"""Heat maps: `cs336 show`, and `heatmap` in the terminal and as a figure."""

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from matplotlib.image import imread
from rich.console import Console

from lab.notebook import heatmap
from staff.tests.lab.conftest import Lab
from whichline.cli import main as cs336
from whichline.lab import BadInput

WEIGHTS = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]])

# Attention of other kinds, as a student may have written it.
DEF = "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    "
EVEN = DEF + "return V.mean(-2, keepdim=True).expand(*Q.shape[:-1], -1)"


def rows_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_weights_of_a_call_head_by_head(lab: Lab) -> None:
    result = lab("show", "--case", "attention/3d-causal")
    rows = rows_of(result.output)
    assert result.exit_code == 0
    assert rows[0] == "weights at [0] weights at [1]"
    assert rows[2:4] == ["0 100 · · · · · · 0 100 · · · · · ·", "1 68 32 · · · · · 1 61 39 · · · · ·"]
    assert rows[-1] == "rows are queries, columns are keys; in percent; · hidden by the mask"
    assert max(map(len, result.output.splitlines())) <= 80
    even = rows_of(lab("show", "--case", "attention/3d-causal", adapters=EVEN).output)
    assert "3 14 14 14 14 14 14 14 3 14" in even[5]
    assert "\nuv run cs336 show --case attention/other-by-hand\n" in lab("show").output


def test_a_call_of_ones_own_as_a_figure(lab: Lab, tmp_path: Path) -> None:
    assert lab("show", "--case", "attention/other-no-batch", "-o", "weights.svg").output == "weights.svg is written\n"
    assert (tmp_path / "weights.svg").stat().st_size > 1000
    assert rows_of(lab("show", "--case", "attention/other-no-batch").output)[0] == "weights"


@pytest.mark.parametrize(
    ("adapters", "message"),
    [
        (DEF + "raise NotImplementedError", "not implemented yet: write run_scaled_dot_product_attention in adapters"),
        (DEF + "pass", "the answer is None, expected a tensor: is a `return` missing?"),
        (EVEN.replace("Q.shape[:-1]", "Q.shape[1:-1]"), "RuntimeError: expand"),
        (EVEN.replace("*Q.shape", "2, *Q.shape"), "the answer has shape (2, 2, 7, 7), expected (2, 7, 7)"),
        ("from nowhere import x", "ModuleNotFoundError: No module named 'nowhere'"),
        ("exit()", "SystemExit"),
        ("", "not implemented yet: write run_scaled_dot_product_attention in adapters.py"),
    ],
)
def test_what_the_student_has_still_to_do(lab: Lab, tmp_path: Path, adapters: str, message: str) -> None:
    result = lab("show", "--case", "attention/3d-causal", "-o", "weights.png", adapters=adapters)
    assert result.output.startswith(f"Error: {message}")
    assert "Traceback" not in result.output
    assert result.exit_code == 1
    assert not (tmp_path / "weights.png").exists()


def test_help_imports_nothing_heavy_and_fits_80_columns() -> None:
    heavy = "[name for name in ('torch', 'matplotlib', 'numpy') if name in sys.modules]"
    code = f"import sys, whichline.cli, whichline.lab.commands; sys.exit({heavy} or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for command in (cs336, *(cs336.get_command(click.Context(cs336), name) for name in ("bench", "debug", "show"))):
        assert command is not None
        text = command.get_help(click.Context(command, info_name="cs336", terminal_width=80))
        assert max(map(len, text.splitlines())) <= 80


def test_a_text_on_another(tmp_path: Path) -> None:
    shown = heatmap(WEIGHTS.clone().requires_grad_(), "le chat", "the cat sat", values=True)
    assert rows_of(repr(shown))[2:5] == ["0 le 70 20 10", "1 chat 0 50 50", "columns: 0 the, 1 cat, 2 sat"]
    assert shown._repr_png_().startswith(b"\x89PNG")
    shown.save(tmp_path / "map.png")
    height, width, _ = imread(tmp_path / "map.png").shape
    assert 300 < height < width < 700


def read_figure(shown: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setitem(__import__("matplotlib").rcParams, "svg.fonttype", "none")
    shown.save(path)
    return re.findall(r">([^<]+)</text>", path.read_text())


def test_the_text_of_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = heatmap([WEIGHTS, 1 - WEIGHTS], "a b", "c d e", values=True, titles=["before", "after $1$"])
    assert rows_of(repr(shown))[0] == "before after $1$"
    text = read_figure(shown, tmp_path / "maps.svg", monkeypatch)
    assert {"before", "after $1$", "a", "e", "70", "80", "key", "query", "weight", "100%"} <= {*text}
    assert "hidden by the mask" not in text
    shown = heatmap([[2.0, -torch.inf], [-0.01, -4.0]], scores=True, values=True)
    assert rows_of(repr(shown))[2:4] == ["0 2.0 ·", "1 0.0 -4.0"]
    text = read_figure(shown, tmp_path / "scores.svg", monkeypatch)
    assert {"2.0", "-4.0", "score", "hidden by the mask"} <= {*text}
    assert not [each for each in text if "%" in each]


def test_the_same_weight_has_the_same_colour_in_every_map() -> None:
    even, sharp = heatmap(torch.full((7, 7), 0.25)), heatmap(torch.tensor([[0.25, 0.75, 0.0]]))
    assert even.paint(0.25) == sharp.paint(0.25) != sharp.paint(0.75)
    assert heatmap(even.maps, vmax=0.25).paint(0.25) == even.paint(1.0) == even.paint(2.0)


def test_hidden_cells_are_hatched_unless_they_have_weight(tmp_path: Path) -> None:
    for name, mask in (("hatched", torch.eye(4) > 0), ("plain", None)):
        heatmap(torch.zeros(4, 4), mask=mask).save(tmp_path / f"{name}.png")
    hatched, plain = (imread(tmp_path / f"{name}.png")[..., :3].mean() for name in ("hatched", "plain"))
    assert hatched < plain - 0.005
    assert "1 · 50 50" in rows_of(repr(heatmap(WEIGHTS, mask=WEIGHTS < 0)))  # a hidden key with weight is seen


def test_colours_in_the_terminal_and_numbers_without_them() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80)
    with console.capture() as coloured:
        console.print(heatmap(WEIGHTS.numpy()))
    assert "48;2;" in coloured.get()
    assert "\x1b" not in repr(heatmap(WEIGHTS))
    assert rows_of(repr(heatmap([[torch.nan, 0.5]])))[2] == "0 NaN 50"


def test_a_long_text_is_for_a_figure() -> None:
    assert repr(heatmap(torch.eye(60))) == "60 keys do not fit into this terminal; a figure shows them: -o figure.png"


@pytest.mark.parametrize(
    ("weights", "named", "message"),
    [
        (WEIGHTS, {"queries": "a b"}, "weights are for 3 keys, and there are 2 tokens to name them"),
        (WEIGHTS, {"queries": "a", "keys": "c d e"}, "weights are for 2 queries, and there are 1 tokens to name them"),
        (torch.ones(3), {}, "weights have the shape (3,), expected (queries, keys) or (heads, queries, keys)"),
        (torch.ones(2, 1, 3, 3), {}, "weights have the shape (2, 1, 3, 3), expected (queries, keys) or (heads"),
        ([WEIGHTS, WEIGHTS], {"titles": ["one"]}, "there are 1 titles for 2 maps"),
    ],
)
def test_weights_that_do_not_fit(weights: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as raised:
        heatmap(weights, **named)
    assert raised.value.message.startswith(message)
