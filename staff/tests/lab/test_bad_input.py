"""What the lab's commands say of bad input: one line and status 2, and nothing is written."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from staff.tests.files import files_in
from staff.tests.lab.conftest import Lab
from staff.tools.student import ROOT


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which commands are refused: calls, and what is none."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copy(ROOT / "adapters.py", folder)
    (folder / "folder.png").mkdir()
    save_file({"K": torch.ones(2, 2), "x": torch.ones(2)}, folder / "other.safetensors")
    save_file({name: torch.ones(2, size) for name, size in zip("QKV", (3, 4, 4), strict=True)}, folder / "misfit")
    save_file({name: torch.ones(2, 3) for name in "QKV"}, folder / "call.safetensors")
    torch.save({"Q": torch.ones(2, 2)}, folder / "pickled.pt")
    return folder


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench --device cuda", "PyTorch finds no GPU here (torch.cuda.is_available() is False): leave --device out\n"),
        ("debug other.safetensors --case attention/3d-causal", "give either FILE or --case NAME\n"),
        ("debug gone.safetensors", "cannot read gone.safetensors: No such file or directory"),
        ("debug .", "cannot read .: "),
        ("debug adapters.py", "adapters.py is not a safetensors file ("),
        ("debug pickled.pt", "pickled.pt is not a safetensors file ("),  # and so nothing is unpickled
        ("debug other.safetensors", "other.safetensors lacks Q and V, it has K, x: a call of attention is Q, K, V and"),
        ("debug --case attention/3d-casual", "debug has no case attention/3d-casual: is it attention/3d-causal?\n"),
        ("debug --case softmax/3d-last", "debug has no case softmax/3d-last: is it softmax/3d-last-dim?\n"),
        ("debug --case nonsense/foo", "debug has no case nonsense/foo: uv run cs336 debug lists the cases\n"),
        ("show --case softmax/1d", "show has no case softmax/1d: uv run cs336 show lists the cases\n"),
        ("show --case rope", "show has no case rope: uv run cs336 show lists the cases\n"),
        ("show gone.safetensors", "cannot read gone.safetensors: No such file or directory"),
        ("show misfit", "K (2, 4) float32 does not fit what is before it: it should be of one floating-point dtype"),
        ("show call.safetensors -o a.txt", "cannot write a.txt: Format 'txt' is not supported"),
        ("show call.safetensors -o no/a.png", "cannot write no/a.png: No such file or directory\n"),
        ("show call.safetensors -o folder.png", "cannot write folder.png: Is a directory\n"),
    ],
)
def test_bad_input(lab: Lab, files: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # of adapters.py, beside it
    shutil.copytree(files, Path.cwd(), dirs_exist_ok=True)
    result = lab(*command.split())
    assert result.output.startswith(f"Error: {message}")
    assert (result.output.count("\n"), result.exit_code) == (1, 2)
    assert files_in(Path.cwd()) == files_in(files) | {"assignment.toml": (ROOT / "assignment.toml").read_bytes()}
