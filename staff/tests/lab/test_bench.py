"""`cs336 bench`: every implementation that is written and runs here, and words on the others."""

import shutil
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from lab import bench
from lab.attention import Attention
from staff.tests.lab.conftest import Lab
from staff.tests.lab.test_debug import ATTENTION

Q, K, V = torch.randn(3, 1, 2, 8, 4, generator=torch.Generator().manual_seed(0))
MASK = torch.ones(8, 8, dtype=torch.bool).tril()
CHUNKS = "yours, in chunks"
UNWRITTEN = "def run_scaled_dot_product_attention(*_):\n    raise NotImplementedError\n"


def yours(Q, K, V, mask):
    return (Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ V


def test_tables_of_what_is_written_and_runs_here(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    blockwise = "def run_blockwise_attention(*_):\n    raise NotImplementedError\n"
    result = lab("bench", "--length", "16", "--length", "32", adapters=ATTENTION + blockwise)
    assert result.exit_code == 0
    output, rows = result.output, [" ".join(line.split()) for line in result.output.splitlines()]
    assert "yours, blockwise is left out: not implemented yet: write run_blockwise_attention in adap" in " ".join(rows)
    assert "MiB of tensors held at most, forward and backward" in rows
    assert max(map(len, output.splitlines())) <= 80
    for name in ("yours", CHUNKS, "PyTorch, math", "PyTorch, is_causal"):
        # Time and memory, with backward and without.
        assert len([row for row in rows if row.startswith(f"{name} ")]) == 4
    nothing = lab("bench", "--length", "16", adapters="")
    assert nothing.exit_code == 0
    assert "yours is left out: " in nothing.output
    assert "PyTorch, math is left out" not in nothing.output


@pytest.mark.parametrize("command", ["bench --length 16", "compare", "debug --case attention/other-by-hand"])
def test_only_what_was_asked_for_prints(lab: Lab, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    monkeypatch.setattr("sys.breakpointhook", lambda: print("stopped"))
    adapters = ATTENTION.replace("wide = ", 'print("noise"); breakpoint(); wide = ')
    shown = lab(*command.split(), adapters=adapters).output.splitlines()
    assert shown.count("noise") == shown.count("stopped") == ("debug" in command)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile` without what it compiled before."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    torch.compiler.reset()


@pytest.mark.nightly
@pytest.mark.usefixtures("compiler")
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_compiled_on_request(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    output = lab("bench", "--compile", "--length", "32", adapters=ATTENTION).output
    assert "yours, compiled is left out" not in output
    assert output.startswith("Compiling yours, which may take a minute\n")
    assert output.count("\n      yours, compiled") == 2
    torch.testing.assert_close(bench.attend(Attention(yours), "yours, compiled", Q, K, V, MASK), yours(Q, K, V, MASK))


@pytest.mark.nightly
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("adapters", "rows", "why"),
    [
        (ATTENTION, 4, "InductorError: InvalidCxxCompiler: No working C++ compiler found"),
        (UNWRITTEN, 0, "not implemented yet: write run_scaled_dot_product_attention in adapters.py:2"),
    ],
    ids=["without a compiler", "not written"],
)
def test_what_cannot_be_compiled(lab: Lab, adapters: str, rows: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    from torch._inductor.config import patch  # it takes seconds

    with patch({"cpp.cxx": ("/nonexistent/g++",)}):
        output = lab("bench", "--compile", "--length", "16", adapters=adapters).output
    assert f"yours, compiled is left out: {why}" in " ".join(output.split())
    lines = [line.strip() for line in output.splitlines()]
    assert len([line for line in lines if line.startswith("yours  ")]) == rows
    assert not any(line.startswith("yours, compiled  ") for line in lines)


@pytest.mark.parametrize("name", ["yours", CHUNKS, "PyTorch, math", "PyTorch, flash", "PyTorch, is_causal"])
def test_all_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CHUNK", 3)
    expected = scaled_dot_product_attention(Q, K, V, MASK)
    torch.testing.assert_close(bench.attend(Attention(yours), name, Q, K, V, MASK), expected)


def test_memory_is_counted() -> None:
    """A forward pass holds few matrices at once, one in chunks fewer; all that the backward pass needs are more."""
    matrix = 4 * 256**2 * 4
    peaks = {
        (name, backward): bench.measure_memory(bench.prepare(Attention(yours), name, 256, backward, "cpu"), "cpu")
        for name in ("yours", CHUNKS)
        for backward in (False, True)
    }
    assert 2 * matrix <= peaks["yours", False] < 4 * matrix
    assert peaks[CHUNKS, False] < 0.7 * peaks["yours", False]
    assert peaks["yours", True] > peaks["yours", False] + matrix
    assert bench.measure_memory(lambda: torch.ones(1000).sum(), "cpu") == pytest.approx(4000, abs=64)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu(lab: Lab) -> None:
    result = lab("bench", "--device", "cuda", "--length", "256")
    assert result.exit_code == 0, result.output
    assert "PyTorch, flash" in result.output
