"""The stored cases are what the references give, and a case that is not is found."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from problems.scaled_dot_product_attention.staff.cases import inputs as attention
from staff.tests import ROOT
from whichline.engine.assignment import SuiteError
from whichline.engine.case import CaseError, load_case
from whichline_grader.authoring import stored_cases
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.authoring.spec import Adapter, reference_of
from whichline_grader.authoring.stored_cases import check_fixtures, write_fixtures

FIXTURES = ROOT / "fixtures"
SPECS = [
    CaseSpec("attention/one", "run_scaled_dot_product_attention", attention(2, mask="random"), gradients=("Q",)),
    CaseSpec("attention/two", "run_scaled_dot_product_attention", attention(2)),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fixtures")
    write_fixtures(folder, SPECS)
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {spec.name: (folder / f"{spec.name}.safetensors").read_bytes() for spec in SPECS}


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """Two cases of one's own, to be damaged."""
    return shutil.copytree(written, tmp_path / "fixtures")


def change(path: Path, tensors: dict[str, torch.Tensor] | None = None, **metadata: object) -> None:
    """Write a case again with other tensors or other metadata."""
    with safe_open(path, framework="pt") as file:
        stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
        old = json.loads(file.metadata()["case"])
    save_file(stored | (tensors or {}), path, {"case": json.dumps(old | metadata)})


def test_writing_twice_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_fixtures(tmp_path, SPECS)
    assert bytes_of(tmp_path) == bytes_of(written)


def test_a_stray_case_is_named_and_removed(folder: Path) -> None:
    shutil.copy(folder / "attention/one.safetensors", folder / "attention/three.safetensors")
    assert list(check_fixtures(folder, SPECS)) == ["attention/three: no case of this name is known"]
    write_fixtures(folder, SPECS)
    assert list(check_fixtures(folder, SPECS)) == []


def test_what_another_processor_rounds_otherwise_stays_and_what_is_wrong_is_written(folder: Path) -> None:
    right = bytes_of(folder)
    answer = load_case(folder, "attention/one").expected["answer"]
    change(folder / "attention/one.safetensors", {"expected/answer": answer.nextafter(answer + 1)})
    near = bytes_of(folder)
    assert near != right
    change(folder / "attention/two.safetensors", {"expected/answer": answer.nextafter(answer + 1) * 2})
    assert write_fixtures(folder, SPECS) == 1
    assert bytes_of(folder) == {"attention/one": near["attention/one"], "attention/two": right["attention/two"]}


def test_the_cases_that_are_named_are_looked_at_and_no_others(folder: Path) -> None:
    right = bytes_of(folder)
    for spec in SPECS:
        (folder / f"{spec.name}.safetensors").write_bytes(b"")
    stray = folder / "attention/three.safetensors"
    stray.touch()
    only = ["attention/two"]
    assert [line.partition(":")[0] for line in check_fixtures(folder, SPECS, only=only)] == only
    assert write_fixtures(folder, SPECS, only=only) == 1
    assert bytes_of(folder) == {"attention/one": b"", "attention/two": right["attention/two"]}
    assert stray.exists()


OTHERS = (
    attention(2, mask="causal"),
    attention(2, keys=11),
    attention(2, scale=1.001),
    attention(2, dtype=torch.float64),
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(({"draw": draw}, "the inputs are not those that were drawn; write it again") for draw in OTHERS),
        ({"gradients": ("Q",)}, "stores no gradients; write it again"),
    ],
)
def test_a_case_with_another_recipe_is_found_and_written(folder: Path, change: dict, said: str) -> None:
    specs = [SPECS[0], replace(SPECS[1], **change)]
    assert list(check_fixtures(folder, specs)) == [f"attention/two: {said}"]
    assert write_fixtures(folder, specs) == 1
    assert list(check_fixtures(folder, specs)) == []


@pytest.mark.slow
def test_another_processor_leaves_every_case_as_it_is(tmp_path: Path) -> None:
    """One without vector instructions, as far as torch knows: it draws and rounds most cases otherwise."""
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    lines = (
        "import sys, torch; from pathlib import Path; from whichline_grader.authoring.spec import load_specs;"
        "from whichline_grader.authoring.stored_cases import write_fixtures;"
        "specs = [case for spec in load_specs().values() for case in spec.public];"
        "torch.set_num_threads(1); print(write_fixtures(Path(sys.argv[1]), specs))"
    )
    command = [sys.executable, "-c", lines, tmp_path / "fixtures"]
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert finished.stdout == "0\n"


@pytest.mark.parametrize(
    ("changed", "by", "said"),
    [
        ("expected/answer", 1e-9, "the stored answer is not what the reference gives; write it again"),
        ("expected/gradient of Q", 1e-9, "the stored gradient of Q is not what the reference gives; write it again"),
        ("input/V", 1.0, "the inputs are not those that were drawn; write it again"),
    ],
)
def test_a_changed_tensor_is_found(folder: Path, changed: str, by: float, said: str) -> None:
    path = folder / "attention/one.safetensors"
    change(path, {changed: load_file(path)[changed] + by})
    assert f"attention/one: {said}" in check_fixtures(folder, SPECS)


def test_another_generator_is_found(folder: Path) -> None:
    change(folder / "attention/two.safetensors", generator=0)
    assert list(check_fixtures(folder, SPECS)) == ["attention/two: made by another generator; write it again"]


@pytest.mark.parametrize("damage", [b"", b"\x10\0\0\0\0\0\0\0not json", b"\xff" * 100, None])
def test_a_damaged_or_missing_case_says_what_to_do(folder: Path, damage: bytes | None) -> None:
    case = folder / "attention/one.safetensors"
    case.unlink() if damage is None else case.write_bytes(damage)
    with pytest.raises(CaseError, match=r"one.safetensors cannot be read \(.*\); take it again from the handout"):
        load_case(folder, "attention/one")
    assert len(list(check_fixtures(folder, SPECS))) == 1


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda **inputs: 1 / 0, "run_scaled_dot_product_attention raises ZeroDivisionError: division by"),
        (lambda Q, K, V, mask: V.float(), "run_scaled_dot_product_attention gives the answer in float32, expected "),
    ],
)
def test_a_wrong_reference_is_named_with_its_case(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reference: Adapter, message: str
) -> None:
    monkeypatch.setattr(stored_cases, "reference_of", lambda call: reference)
    for work in (lambda: [*check_fixtures(folder, SPECS[1:])], lambda: write_fixtures(folder / "new", SPECS[1:])):
        with pytest.raises(SuiteError, match=f"^attention/two: .*{message}"):
            work()


def test_the_example_of_two_blocks_worked_by_hand() -> None:
    """Scores (1, 0) and (2, 1): what is carried after each block, and the answer with and without rescaling."""
    first, second, values = torch.tensor([1.0, 0.0]), torch.tensor([2.0, 1.0]), torch.tensor([4.0, 2.0, 1.0, 3.0])
    weights = torch.exp(first - 1)
    total, weighted = weights.sum(), weights @ values[:2]
    assert (round(float(total), 4), round(float(weighted), 4)) == (1.3679, 4.7358)
    shrink, weights = math.exp(1 - 2), torch.exp(second - 2)
    assert round(float((weighted + weights @ values[2:]) / (total + weights.sum())), 4) == 2.5
    total, weighted = total * shrink + weights.sum(), weighted * shrink + weights @ values[2:]
    assert (round(float(total), 4), round(float(weighted), 4)) == (1.8711, 3.8458)
    case = load_case(FIXTURES, "blockwise/by-hand")
    assert (case.Q @ case.K.mT).tolist() == [[*first.tolist(), *second.tolist()]]
    assert case.V.flatten().tolist() == values.tolist()
    assert round(float(case.expected["answer"]), 4) == round(float(weighted / total), 4) == 2.0554


def test_the_reference_is_pytorchs_attention() -> None:
    case = load_case(FIXTURES, "attention/4d-random-mask")
    Q, K, V = (x.double() for x in (case.Q, case.K, case.V))
    torch.testing.assert_close(
        reference_of("run_scaled_dot_product_attention")(Q, K, V, case.mask),
        torch.nn.functional.scaled_dot_product_attention(Q, K, V, case.mask),
    )
