"""A reference, observed: the names of its values, and what a tutor asks."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import problems
from staff.tests.files import write_files
from whichline.engine import problem_folder
from whichline.engine.problem_folder import list_adapters
from whichline.locate.checkpoints import Step
from whichline.locate.named import NamedFile
from whichline.locate.reference import Reference, load_references

ORDINARY = """\
import torch
from torch import Tensor

# 2 Halves
def run_ordinary(x: Tensor, blocks: int) -> Tensor:
    first = halve(x, 1)
    second = halve(x, 2)  #: the lower half. Which is it?
    #: Does the order matter?
    both = torch.stack(
        (first, second)
    )  #: both
    first_sum = first.sum()  #: x₁ in all
    second_sum = second.sum()  #: x₂ in all

    #: the sums,
    #: side by side. Which comes first?
    sums = torch.stack((first_sum, -second_sum))
    total = torch.zeros(1)
    for start in range(blocks):  #: block
        total = total + x[start]  #: the sum up to {}
        for _ in range(2):
            twice = total + total
    keep(total)
    size = x.shape[0]
    length = x.shape[0]  #: the length
    flag = blocks > 1  #: whether there are more
    return total + 0 * both.sum() + 0 * sums.sum(), twice, 3 * twice

def keep(x: Tensor) -> Tensor:
    halve(x, 4)  #: all
    return halve(x, 3)

def halve(x: Tensor, times: int) -> Tensor:
    half = 1 / 2
    part = x * half**times  #: a part of {}
    return part
"""


@pytest.fixture
def ordinary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Step]:
    write_files(tmp_path, {"ordinary/reference.py": ORDINARY})
    monkeypatch.setattr(problems, "__path__", [*problems.__path__, str(tmp_path)])
    return Reference("ordinary", "run_ordinary").compute_checkpoints({"x": torch.arange(3.0), "blocks": 2}).taken


def test_values_are_named_by_their_variables_comments_calls_and_turns(ordinary: dict[str, Step]) -> None:
    assert [*ordinary] == [
        "the half",
        "a part of the first",
        "the first",
        "a part of the second",
        "the lower half",
        "both",
        "x₁ in all",
        "x₂ in all",
        "the sums, side by side",
        "the total",
        "the sum up to block 1",
        "the twice of turn 1 of block 1",
        "the twice of turn 2 of block 1",
        "the sum up to block 2",
        "the twice of turn 1 of block 2",
        "the twice of turn 2 of block 2",
        "a part of all",
        "a part",
        "the length",
        "output 3",
        "the answer",
    ]
    assert {step.section for step in ordinary.values()} == {"2 Halves"}


def test_a_question_is_asked_of_a_value_or_up_to_a_blank_line(ordinary: dict[str, Step]) -> None:
    assert {name: step.ask for name, step in ordinary.items() if step.ask} == {
        "the lower half": "Which is it?",
        "both": "Does the order matter?",
        "x₁ in all": "Does the order matter?",
        "x₂ in all": "Does the order matter?",
        "the sums, side by side": "Which comes first?",
    }


def test_values_of_a_loop_are_a_series(ordinary: dict[str, Step]) -> None:
    series = {name: (step.series, step.turns) for name, step in ordinary.items() if step.series}
    assert series["the sum up to block 2"] == ("the sum up to block", (2,))
    assert series["the twice of turn 1 of block 2"] == ("the twice of turn of block", (1, 2))
    assert len(series) == 6


def test_an_output_without_a_name_is_a_value_before_the_answer(ordinary: dict[str, Step]) -> None:
    *_, third, answer = ordinary.values()
    assert (third.name, answer.name) == ("output 3", "the answer")
    assert third.tensor.tolist() == [6.0]
    assert third.order < answer.order
    assert "output 2" not in ordinary


def test_values_are_computed_in_float64_and_keep_their_graph() -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    steps = Reference("softmax", "run_softmax").compute_checkpoints({"in_features": x, "dim": 1}).taken
    assert {step.value.tensor.dtype for step in steps.values()} == {torch.float64}
    assert all(step.tensor.requires_grad for step in steps.values() if isinstance(step.tensor, Tensor))
    assert torch.get_default_dtype() == torch.float32


def test_what_differs_between_calls_or_is_stacked_are_counterparts() -> None:
    pairs = {frozenset(pair) for pair in NamedFile(ORDINARY).list_counterparts()}
    assert pairs == {frozenset(("first", "second")), frozenset(("x₁", "x₂"))}


def test_a_reference_that_staff_alone_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = '"""Staff have it."""\n\nfrom problems.{}.staff.reference import run_other, run_ordinary\n'
    files = {f"{name}/reference.py": imports.format(name) for name in ("kept", "shipped")}
    write_files(tmp_path, files | {"kept/staff/reference.py": f"{ORDINARY}\n\ndef run_other(x):\n    return x\n"})
    monkeypatch.setattr(problems, "__path__", [*problems.__path__, str(tmp_path)])
    monkeypatch.setattr(problem_folder, "_find_folders", lambda: [tmp_path])
    assert list_adapters("kept") == ("run_ordinary", "run_other")
    steps = load_references("kept")["run_ordinary"].compute_checkpoints({"x": torch.arange(3.0), "blocks": 2}).taken
    assert "the lower half" in steps
    assert list_adapters("shipped") == ("run_other", "run_ordinary")
    assert load_references("shipped") == {}
