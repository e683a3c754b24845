"""`cs336 bench`: every implementation that is written and runs here, and words on the others."""

import csv
import math
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from cs336_kit.lab.bench_figure import write_figure
from cs336_kit.lab.contenders import pytorchs, reference
from cs336_kit.lab.measurement import Row, forward, inputs, median_seconds, training
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import Student


@pytest.mark.slow
def test_a_short_run(student: Student) -> None:
    """With blockwise attention still to be written. Forks have to be made before this process computes anything."""
    student.unwrite("cs336_basics/nn/blockwise.py")
    outputs = ("-o", "bench.csv", "-o", "bench.svg")
    result = student.run("cs336_kit", "bench", "--length", "256", "--length", "512", *outputs)
    assert result.returncode == 0, result.stderr
    assert "PyTorch's own attention has these back ends here: math, " in result.stdout
    assert "blockwise is left out: not implemented yet: write blockwise_attention in" in result.stdout
    assert "torch.compile is left out: --compile adds it" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if "is left out" not in line) <= 90
    with (student.folder / "bench.csv").open(newline="") as file:
        rows = {(row["implementation"], int(row["length"])): row for row in csv.DictReader(file)}
    assert {name for name, _ in rows} >= {"einsum", "query chunks", "checkpointed", "blockwise, lab", "PyTorch, math"}
    assert all(float(row["largest_difference"]) < 1e-5 for row in rows.values())
    assert all(float(row["forward_seconds"]) > 0 for row in rows.values())
    # Four layers keep their matrices at once, or one at a time. Below 256, what counts is what else there is.
    plain, checkpointed = (int(rows[name, 512]["training_bytes"]) for name in ("einsum", "checkpointed"))
    assert checkpointed < 0.7 * plain
    matrix = 4 * 512**2 * 4
    assert 8 * matrix < plain < 20 * matrix
    assert b"time of training" in (student.folder / "bench.svg").read_bytes()


@pytest.mark.slow
def test_nothing_of_the_students_is_written(student: Student) -> None:
    student.unwrite("cs336_basics/nn/functional.py")
    result = student.run("cs336_kit", "bench", "--length", "16")
    assert result.returncode == 0, result.stderr
    assert "einsum is left out: not implemented yet: write " in result.stdout
    assert "PyTorch, math" in result.stdout


def test_training_goes_through_four_layers() -> None:
    calls = []

    def attention(Q, K, V, mask):
        calls.append((Q, mask))
        return reference(Q, K, V, mask).float()

    training(attention, 5)()
    assert [Q.shape for Q, _ in calls] == [(1, 4, 5, 64)] * 4
    assert not torch.equal(calls[0][0], calls[1][0])
    assert torch.equal(calls[0][1], torch.ones(5, 5, dtype=torch.bool).tril())


def test_the_median_of_calls_that_take_turns() -> None:
    order = []
    seconds = median_seconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")})
    assert order[:6] == ["a", "b"] * 3
    assert all(0 < value < 0.1 for value in seconds.values())


def test_the_math_back_end_runs_everywhere() -> None:
    Q, K, V, mask = inputs(8)
    difference = pytorchs()["PyTorch, math"](Q, K, V, mask) - reference(Q, K, V, mask)
    assert difference.abs().max() < 1e-6
    forward(pytorchs()["PyTorch, math"], 8)()


def test_a_plot_without_memory(tmp_path: Path) -> None:
    """As on machines where memory is not known."""
    rows = [Row(length, "einsum", 1e-3 * length, None, 1e-2 * length, None, math.pi) for length in (64, 128)]
    write_figure(tmp_path / "bench.png", rows)
    assert imread(tmp_path / "bench.png").std() > 0.02


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "bench.txt"), "Error: expected a file that ends in .csv or .png or .svg, got bench.txt\n"),
        (("-o", "no/a.csv"), "Error: there is no folder no; make it, or name another file than no/a.csv\n"),
    ],
)
def test_bad_input(lab: Lab, arguments: tuple[str, ...], message: str) -> None:
    result = lab("bench", *arguments)
    assert (result.output, result.exit_code) == (message, 2)
