"""`cs336 show`: the student's weights in the terminal, as a figure, in words; and what it says of bad input."""

import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import torch
from matplotlib.image import imread

from cs336_kit.cli import cs336
from cs336_kit.lab.picture import Pattern, Picture
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import ROOT

# Attention of other kinds, as a student may have written it.
DEF = "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    "
EVEN = DEF + "return V.mean(-2, keepdim=True).expand(*Q.shape[:-1], -1)"
FIRST = DEF + "return V[..., :1, :].expand(*Q.shape[:-1], -1)"
NAN = DEF + "return V * float('nan')"
SHORT = DEF + "return V / 2"

CAT = ("The", "cat", "sat", "on", "the", "mat")
LAB = ("bench", "compare", "debug", "flow", "show", "train")


def test_a_heatmap_in_percent_and_each_row_in_words(lab: Lab) -> None:
    result = lab("show", "--head", "meaning")
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.output.splitlines()] == [
        "         meaning",
        "           0  1  2  3  4  5  6",
        "0 The     14 14 14 14 14 14 14",
        "1 bank     2  2  2  2 44  2 44",
        "2 of      14 14 14 14 14 14 14",
        "3 the     14 14 14 14 14 14 14",
        "4 river    2 44  2  2 44  2  2",
        "5 was     14 14 14 14 14 14 14",
        "6 steep    2 44  2  2  2  2 44",
        "",
        "  rows ask, columns are looked at; in percent",
        "",
        "meaning",
        "  “The” looks equally at all 7 it sees (14% each)",
        "  “bank” looks most at “river” and “steep” (44% each)",
        "  “of” looks equally at all 7 it sees (14% each)",
        "  “the” looks equally at all 7 it sees (14% each)",
        "  “river” looks most at “bank” and itself (44% each)",
        "  “was” looks equally at all 7 it sees (14% each)",
        "  “steep” looks most at “bank” and itself (44% each)",
    ]


def test_rhymes_with_and_without_a_mask_side_by_side(lab: Lab) -> None:
    rows = lab("show", *CAT, "--head", "sound", "--mask", "both").output.splitlines()
    assert rows[0].split() == ["sound", "sound,", "causal"]
    assert rows[4].split() == ["2", "sat", "2", "32", "32", "2", "2", "32", "2", "49", "49", "·", "·", "·"]


def test_columns_stay_apart(lab: Lab) -> None:
    rows = lab("show", "--head", "sound", adapters=FIRST).output.splitlines()
    assert rows[2].split() == ["0", "The", "100", *"000000"]
    rows = lab("show", "--head", "sound", adapters=NAN).output.splitlines()
    assert rows[2].split() == ["0", "The", *["NaN"] * 7]


def test_the_weights_are_those_of_the_students_attention(lab: Lab) -> None:
    assert "1 cat   17 17 17 17 17 17" in lab("show", *CAT, "--head", "sound", adapters=EVEN).output
    assert "“cat” looks at “The” alone" in lab("show", *CAT, "--head", "sound", adapters=FIRST).output


@pytest.mark.parametrize(
    ("adapters", "line"),
    [
        (NAN, "Some numbers are NaN or infinite; `cs336 debug` tells where they come from."),
        (SHORT, "The weights of a token should sum to 100%; yours sum to 50%."),
    ],
)
def test_weights_that_are_none(lab: Lab, adapters: str, line: str) -> None:
    assert line in lab("show", adapters=adapters).output
    assert line in lab("show", "-o", "page.html", adapters=adapters).output


def test_a_figure_of_weights_that_are_none(lab: Lab) -> None:
    assert lab("show", "--head", "sound", "-o", "figure.png", adapters=NAN).exit_code == 0


def test_words_that_are_not_in_the_table(lab: Lab) -> None:
    output = " ".join(lab("show", "The", "zorgly", "bank", "of", "a", "xyz", "XYZ?").output.split())
    assert (
        "Not in the table of words: known by the ending alone: zorgly; without any feature, so asking for nothing and "
        "found by nobody: xyz, XYZ, ?." in output
    )
    known = lab("show").output
    assert "Not in the table" not in known
    assert known.splitlines()[0].split() == ["grammar", "meaning", "sound"]  # side by side
    assert max(map(len, known.splitlines())) <= 80


def test_a_text_too_long_for_numbers_and_one_too_long_for_the_terminal(lab: Lab) -> None:
    result = lab("show", "--head", "sound", *["cat", "of"] * 15)
    assert "29 of   " + "▒" * 30 in result.output
    (row,) = [line for line in result.output.splitlines() if line.startswith("28 cat")]
    assert row.rstrip() == "28 cat  " + "█ " * 14 + "█"
    assert "and 10 more tokens, which a page has" in result.output
    result = lab("show", *["cat"] * 200, "--head", "sound")
    assert "200 tokens do not fit into this terminal; a page shows them: -o page.html" in result.output
    assert len(result.output.splitlines()) < 40


def test_no_character_moves_the_cursor_or_turns_a_line_round(lab: Lab) -> None:
    for file in ([], ["-o", "page.html"]):
        output = lab("show", "a\x1b[2Jb", "\u202ecat", "👩\u200d🚀", "שלום", *file).output
        assert not {"\x1b", "\u202e", "\u200d"} & set(output)
        assert "שלום" in output


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ([0.1, 0.7, 0.1, 0.1], "“a” looks most at “b” (70%)"),
        ([0.4, 0.1, 0.4, 0.1], "“a” looks most at itself and “the” at 2 (40% each)"),
        ([0.25, 0.25, 0.25, 0.25], "“a” looks equally at all 4 it sees (25% each)"),
        ([0.5, 0.5, 0.0, 0.0], "“a” looks equally at all 2 it sees (50% each)"),
        ([1.0, 0.0, 0.0, 0.0], "“a” looks at itself alone"),
        ([0.0, 0.0, 0.0, 1.0], "“a” looks at “the” at 3 alone"),
        ([0.0, 0.0, 0.0, 0.0], "“a” looks at nothing"),
        ([float("nan"), 0.0, 0.0, 0.0], "“a” has weights that are not numbers"),
        ([0.2, 0.2, 0.2, 0.2, 0.1, 0.1], "“a” looks most at itself, “b”, “the” at 2 and 1 more (20% each)"),
    ],
)
def test_a_row_in_words(row: list[float], sentence: str) -> None:
    tokens, weights = ["a", "b", "the", "the", "c", "d"][: len(row)], torch.tensor([row]).expand(len(row), -1)
    pattern = Pattern(0, "", False, "", weights, torch.zeros_like(weights, dtype=torch.bool))
    assert next(iter(Picture(tokens, tokens, [pattern], []).sentences(pattern))) == sentence


def test_the_scale_is_fixed_unless_asked_otherwise(lab: Lab) -> None:
    assert "Half of the rows" not in lab("show").output
    long = ["show", "--head", "sound", *["cat", "of"] * 15]
    assert "█ is 6, in percent" in lab(*long).output
    assert "Half of the rows have no weight above 3%: with vmax 0.03 you see more." in lab(*long).output
    assert "█ is 5, in percent" in lab(*long, "--vmax", "0.05").output


def test_the_table_asks_for_nothing_that_no_word_has() -> None:
    table = tomllib.loads((ROOT / "cs336_kit/lab/words.toml").read_text())
    features = {feature for kind in ("words", "endings") for known in table[kind].values() for feature in known}
    for asks in table["heads"].values():
        assert features >= {feature for query, keys in asks.items() for feature in (query, *keys)}


def test_figures_are_small_and_keep_their_text(lab: Lab, tmp_path: Path) -> None:
    assert lab("show", "-o", "bank.svg").output == "bank.svg is written\n"
    svg = (tmp_path / "bank.svg").read_text()
    assert all(f">{word}</text>" in svg for word in ("river", "steep", "grammar", "sound, causal"[:5], "weight"))
    assert len(svg) < 60_000
    lab("show", "--mask", "both", "-o", "bank.png")
    height, width, _ = imread(tmp_path / "bank.png").shape
    assert height < width < 2000
    assert (tmp_path / "bank.png").stat().st_size < 140_000


def test_a_figure_of_strange_text(lab: Lab, tmp_path: Path) -> None:
    result = lab("show", "-o", "strange.png", "$\\frac{", "<b>", "👩\u200d🚀")
    assert result.exit_code == 0
    assert "Some signs are in no font that the figure has: a page, -o page.html, shows them." in result.output
    assert lab("show", "-o", "long.png", *["cat"] * 60, "--head", "sound").exit_code == 0


def test_transformers_is_not_installed(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    result = lab("show", "--model", ".")
    assert result.output == "Error: --model needs the package transformers: uv sync --extra models\n"
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("adapters", "message"),
    [
        (
            DEF + "raise NotImplementedError",
            "not implemented yet: write run_scaled_dot_product_attention in adapters.py",
        ),
        (DEF + "pass", "the answer is None, expected a tensor: is a `return` missing?"),
        (EVEN.replace("Q.shape[:-1]", "Q.shape[1:-1]"), "RuntimeError: expand"),
        (EVEN.replace("*Q.shape", "2, *Q.shape"), "the answer has shape (2, 3, 7, 7), expected (3, 7, 7)"),
        ("from nowhere import x", "ModuleNotFoundError: No module named 'nowhere'"),
        ("exit()", "SystemExit"),
    ],
)
def test_what_the_student_has_still_to_do(lab: Lab, tmp_path: Path, adapters: str, message: str) -> None:
    result = lab("show", "-o", "page.html", adapters=adapters)
    assert result.output.startswith(f"Error: {message}")
    assert "Traceback" not in result.output
    assert result.exit_code == 1
    assert not (tmp_path / "page.html").exists()


def test_help_imports_nothing_heavy_and_fits_80_columns() -> None:
    heavy = "[name for name in ('torch', 'matplotlib', 'transformers', 'numpy') if name in sys.modules]"
    code = f"import sys, cs336_kit.cli, cs336_kit.lab.commands; sys.exit({heavy} or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for command in (cs336, *(cs336.get_command(click.Context(cs336), name) for name in LAB)):
        assert command is not None
        text = command.get_help(click.Context(command, info_name="cs336", terminal_width=80))
        assert max(map(len, text.splitlines())) <= 80
