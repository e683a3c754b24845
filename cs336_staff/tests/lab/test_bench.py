"""`cs336 bench`: every implementation that is written and runs here, and words on the others."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from rich.console import Console

from cs336_kit.lab.bench import describe_rows, draw_rows
from cs336_kit.lab.contenders import LINEAR, PYTORCH, attend_exactly
from cs336_kit.lab.measurement import Cost, Row, make_inputs, prepare_call, summarise, time_calls
from cs336_kit.lab.view import View
from cs336_staff.tests.files import rows_of
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import ROOT, Student

# Memory is measured in forks, which are made before anything is computed, or from a process that has one thread.
RUNS = """\
import os, sys
from click.testing import CliRunner
from cs336_kit.cli import cs336
from cs336_kit.lab import measurement

measurement.SECONDS = 0.3
for folder, *arguments in (
    ["unwritten", "--length", "16"],
    ["written", "--length", "16", "--length", "256", "-o", "bench.csv", "-o", "bench.svg"],
):
    os.chdir(os.path.join(sys.argv[1], folder))
    result = CliRunner().invoke(cs336, ["bench", *arguments], env={"COLUMNS": "80"})
    with open("output.txt", "w", encoding="utf-8") as file:
        file.write(f"{result.exit_code}\\n{result.output}")
"""
UNWRITTEN = "".join(
    f"def {name}(*_):\n    raise NotImplementedError\n"
    for name in ("run_scaled_dot_product_attention", "run_blockwise_attention", "checkpointed_attention")
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with what `cs336 bench` printed: "unwritten", and "written", which lacks blockwise attention alone."""
    folder = tmp_path_factory.mktemp("bench")
    for name in ("unwritten", "written"):
        (folder / name).mkdir()
    Student(folder / "written").unwrite("cs336_basics/nn/blockwise.py")
    shutil.copy(ROOT / "assignment.toml", folder / "unwritten")
    (folder / "unwritten" / "adapters.py").write_text(UNWRITTEN)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", RUNS, str(folder)], cwd=ROOT, env=environment, check=True, timeout=300)
    return folder


@pytest.mark.slow
def test_a_short_run(runs: Path) -> None:
    output = (runs / "written" / "output.txt").read_text(encoding="utf-8")
    assert output.startswith("0\n"), output
    words = " ".join(output.split())
    assert "PyTorch with mask gets the mask as a matrix" in words
    assert "PyTorch is_causal is told is_causal=True instead" in words
    assert "blockwise is left out: not implemented yet: write blockwise_attention in" in output
    assert "torch.compile is left out: --compile adds it" in output
    assert max(len(line) for line in output.splitlines() if " left out" not in line) <= 80
    table = rows_of(runs / "written" / "bench.csv")
    rows = {(row["implementation"], int(row["length"])): row for row in table}
    assert {name for name, _ in rows} == {"einsum", "query chunks", "checkpointed", *PYTORCH, LINEAR}
    assert all(float(row["largest_difference"]) < 1e-5 for (name, _), row in rows.items() if name != LINEAR)
    assert all(float(row["forward_seconds"]) > 0 for row in rows.values())
    assert all(float(row["forward_ratio_low"]) <= float(row["forward_ratio_high"]) for row in rows.values())
    assert float(rows["einsum", 256]["training_ratio"]) == 1.0
    # Four layers keep their matrices at once, or one at a time. Below 256, what counts is what else there is.
    plain, checkpointed = (int(rows[name, 256]["training_bytes"]) for name in ("einsum", "checkpointed"))
    assert checkpointed < 0.7 * plain
    matrix = 4 * 256**2 * 4
    assert 8 * matrix < plain < 20 * matrix
    assert b"time of training" in (runs / "written" / "bench.svg").read_bytes()


@pytest.mark.slow
def test_nothing_of_the_students_is_written(runs: Path) -> None:
    output = (runs / "unwritten" / "output.txt").read_text(encoding="utf-8")
    assert output.startswith("0\n"), output
    assert "einsum is left out: not implemented yet: write " in output
    assert "PyTorch is_causal" in output


def cost(ratio: float, scatter: float = 0.01) -> Cost:
    return Cost(ratio / 100, scatter, (ratio, 0.95 * ratio, 1.05 * ratio), 2**20)


def said(*rows: Row) -> str:
    console = Console(width=80, file=io.StringIO(), highlight=False)
    console.print(*describe_rows(rows), sep="\n")
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_which_is_quickest_and_from_which_length_in_words() -> None:
    ratios = {128: (1.0, 1.2, 0.5), 256: (1.0, 1.0, 0.5), 512: (1.0, 0.8, 0.78)}
    names = ("einsum", "query chunks", "PyTorch with mask")
    text = said(
        *(
            Row(length, name, cost(ratio), cost(1.0), 1e-7)
            for length, of_length in ratios.items()
            for name, ratio in zip(names, of_length, strict=True)
        )
    )
    quicker = "PyTorch with mask from 128 on (1.3 times at 512), query chunks from 512 on (1.2 times at 512)."
    assert f"In a forward pass, in at least three rounds of four quicker than einsum: {quicker}" in text
    assert "In training, nothing is quicker than einsum at 512." in text
    assert "0.78±0.04" in text
    assert "→" not in text


def test_a_busy_machine_ranks_nothing() -> None:
    text = said(Row(128, "einsum", cost(1.0), cost(1.0, scatter=0.6), 0.0))
    assert "→ The times scatter: half of those of einsum at length 128 are about 60% or more from their median." in text
    assert "run it again when it is quiet" in text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu(lab: Lab) -> None:
    result = lab("bench", "--device", "cuda", "--length", "256")
    assert result.exit_code == 0, result.output
    assert torch.cuda.get_device_name() in result.output
    assert "PyTorch is_causal" in result.output


def test_training_goes_through_four_layers() -> None:
    calls = []

    def attention(Q, K, V, mask):
        calls.append((Q, mask))
        return attend_exactly(Q, K, V, mask).float()

    prepare_call("training", attention, 5)()
    assert [Q.shape for Q, _ in calls] == [(1, 4, 5, 64)] * 4
    assert not torch.equal(calls[0][0], calls[1][0])
    assert torch.equal(calls[0][1], torch.ones(5, 5, dtype=torch.bool).tril())


def test_calls_take_turns_and_ratios_are_those_of_a_round() -> None:
    order = []
    seconds = time_calls({"a": lambda: order.append("a"), "b": lambda: order.append("b")})
    assert order[:6] == ["a", "b"] * 3
    assert all(0 < min(values) < 0.1 for values in seconds.values())  # others may take a moment away
    found = summarise([2.0, 4.0, 6.0, 8.0], [1.0, 2.0, 3.0, 4.0], None)
    assert (found.seconds, found.ratio) == (5.0, (2.0, 2.0, 2.0))


@pytest.mark.parametrize("name", PYTORCH)
def test_pytorchs_own_computes_the_same_with_a_mask_and_with_is_causal(name: str) -> None:
    Q, K, V, mask = make_inputs(8)
    assert (PYTORCH[name](Q, K, V, mask) - attend_exactly(Q, K, V, mask)).abs().max() < 1e-6


def test_a_plot_without_memory(tmp_path: Path) -> None:
    """As on machines where memory is not known."""
    cost = Cost(1e-3, 0.0, (1.0, 1.0, 1.0), None)
    rows = [Row(length, "einsum", cost, cost, 1e-7) for length in (64, 128)]
    View([], lambda: draw_rows(rows)).save(tmp_path / "bench.png")
    assert imread(tmp_path / "bench.png").std() > 0.02
