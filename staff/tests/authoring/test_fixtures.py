"""The stored cases are what the references give, and a case that is not is found."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from problems.scaled_dot_product_attention.staff.cases import inputs as attention
from staff.tests import ROOT
from staff.tests.grading.conftest import invoke
from whichline.engine.assignment import SuiteError
from whichline.engine.case import CaseError, load_case
from whichline.engine.compare import WrongAnswer
from whichline_grader.authoring import stored_cases
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.authoring.spec import Adapter
from whichline_grader.authoring.stored_cases import check_fixtures, write_fixtures

FIXTURES = ROOT / "fixtures"
SPECS = [
    CaseSpec("attention/one", "run_scaled_dot_product_attention", attention(2, mask="random"), gradients=("Q",)),
    CaseSpec("attention/two", "run_scaled_dot_product_attention", attention(2)),
]
WEIGHTS = {"q": torch.ones(2, 3), "layers.0": torch.arange(3)}
ARRAY = (np.arange(6.0).reshape(2, 3), torch.arange(6.0, dtype=torch.float64).reshape(2, 3))
NAMED = ({"weights": WEIGHTS, "sizes": (2, 3)}, {"weights": WEIGHTS, "sizes": [2, 3]})
TWO = "gives 2 outputs, and `outputs` in SPEC names 1: answer"


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
    stray = "attention/three: no case of this name is known; `staff verify --write` removes the file"
    assert list(check_fixtures(folder, SPECS)) == [stray]
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


OTHERS = [attention(2, mask="causal"), attention(2, keys=11)]
OTHERS += [attention(2, scale=1.001), attention(2, dtype=torch.double)]
DRAWN = [({"draw": draw}, "the inputs are not those that were drawn; write it again") for draw in OTHERS]


@pytest.mark.parametrize(("change", "said"), [*DRAWN, ({"gradients": ("Q",)}, "stores no gradients; write it again")])
def test_a_case_with_another_recipe_is_found_and_written(folder: Path, change: dict, said: str) -> None:
    specs = [SPECS[0], replace(SPECS[1], **change)]
    assert list(check_fixtures(folder, specs)) == [f"attention/two: {said}"]
    assert write_fixtures(folder, specs) == 1
    assert list(check_fixtures(folder, specs)) == []


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
    ("reference", "said"),
    [
        (lambda **inputs: 1 / 0, "run_scaled_dot_product_attention raises ZeroDivisionError: division by"),
        (lambda Q, K, V, mask: V.float(), "run_scaled_dot_product_attention gives the answer in float32, expected "),
    ],
)
def test_a_wrong_reference(folder: Path, monkeypatch: pytest.MonkeyPatch, reference: Adapter, said: str) -> None:
    monkeypatch.setattr(stored_cases, "reference_of", lambda call: reference)
    *_, complaint = check_fixtures(folder, SPECS[1:])
    assert re.match(f"attention/two: .*{said}", complaint)
    with pytest.raises(SuiteError, match=f"^attention/two: .*{said}"):
        write_fixtures(folder / "new", SPECS[1:])


def state(monkeypatch: pytest.MonkeyPatch, reference: Adapter) -> None:
    """Let each adapter have this reference, with one output."""
    monkeypatch.setattr(stored_cases, "reference_of", lambda call: reference)
    monkeypatch.setattr(stored_cases, "outputs_of", lambda call: ("answer",))


def pick(**inputs: Any) -> torch.Tensor:
    """A reference of whole numbers: the position of the largest in each row."""
    return inputs["x"].argmax(-1)


@pytest.mark.parametrize(("drawn", "kept"), [ARRAY, NAMED, (np.float32(0.5), 0.5), ((2, (3, 4)), [2, [3, 4]])])
def test_what_a_case_keeps(drawn: object, kept: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state(monkeypatch, pick)
    specs = [CaseSpec("picks/one", "run_pick", lambda generator: {"x": torch.eye(3), "more": drawn})]
    write_fixtures(tmp_path, specs)
    assert list(check_fixtures(tmp_path, specs)) == []
    case = load_case(tmp_path, "picks/one").copy()
    torch.testing.assert_close(case.more, kept, rtol=0, atol=0)
    case.check(torch.tensor([0, 1, 2]))


def test_a_changed_tensor_in_a_dictionary_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state(monkeypatch, pick)
    specs = [CaseSpec("picks/one", "run_pick", lambda generator: {"x": torch.eye(3), "weights": WEIGHTS})]
    write_fixtures(tmp_path, specs)
    change(tmp_path / "picks/one.safetensors", {"input/weights/q": torch.zeros(2, 3)})
    said = "picks/one: the inputs are not those that were drawn; write it again"
    assert list(check_fixtures(tmp_path, specs)) == [said]


@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        (b"text", "draws more, a bytes: a case keeps tensors, arrays of numpy, numbers, text, lists and dictionaries"),
        ([torch.eye(2)], "draws more, a list with a Tensor in it: a case keeps tensors, arrays of numpy, numbers, "),
    ],
)
def test_what_a_case_cannot_keep_is_refused(drawn: object, said: str, tmp_path: Path) -> None:
    specs = [CaseSpec("picks/one", "run_pick", lambda generator: {"x": torch.eye(3), "more": drawn})]
    with pytest.raises(SuiteError, match=f"^picks/one: {said}"):
        write_fixtures(tmp_path, specs)


@pytest.mark.parametrize(("answer", "said"), [("[1, 2]", "gives a list, expected a tensor"), ("(x, x)", TWO)])
def test_an_answer_that_no_case_keeps(answer: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state(monkeypatch, lambda x: eval(answer, {"x": x}))  # noqa: S307
    with pytest.raises(SuiteError, match=f"^picks/one: .*run_pick.* {said}"):
        write_fixtures(tmp_path, [CaseSpec("picks/one", "run_pick", lambda generator: {"x": torch.eye(3)})])


def test_an_answer_of_whole_numbers_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state(monkeypatch, lambda x: x.argmax(-1) + 10_000)
    write_fixtures(tmp_path, [CaseSpec("picks/one", "run_pick", lambda generator: {"x": torch.eye(3)})])
    case = load_case(tmp_path, "picks/one")
    case.check(torch.tensor([10_000, 10_001, 10_002]))
    for answer, said in (
        (torch.tensor([10_000, 10_001, 10_003]), r"wrong in 1 of 3 places\n.*got 10003, expected 10002\nno error is"),
        (torch.tensor([10_000.0, 10_001.0, 10_002.0]), "the answer has dtype float32, expected int64$"),
    ):
        with pytest.raises(WrongAnswer, match=said):
            case.check(answer)


def test_the_command_writes_the_cases_of_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("adapters.py", "assignment.toml", "cs336_basics", "problems", "staff", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    monkeypatch.chdir(tmp_path)
    for name in ("linear/3d", "softmax/1d"):
        Path("fixtures", f"{name}.safetensors").unlink()
    finished = invoke("verify", "linear", "--write")
    assert "1 of 4 public cases written, in" in finished.output
    assert "\n0 of 4 hidden cases written, in" in finished.output
    assert load_file("fixtures/linear/3d.safetensors").keys() == load_file(FIXTURES / "linear/3d.safetensors").keys()
    assert not Path("fixtures/softmax/1d.safetensors").exists()


def test_everything_that_is_wrong_with_some_cases_is_said(tmp_path: Path) -> None:
    specs = [CaseSpec(f"picks/{i}", "run_softmax", lambda generator: {"x": 1 / 0}) for i in range(3)]
    specs += [CaseSpec("picks/other", "run_softmax", lambda generator: {"x": [][0]})]
    with pytest.raises(SuiteError, match=r"^picks/0 and 2 more: .*ZeroDivisionError.*\npicks/other: .*IndexError"):
        write_fixtures(tmp_path, specs)


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
