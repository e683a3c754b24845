"""The annotations of a student's files are checked, once for each kind of call."""

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from jaxtyping import TypeCheckError

from whichline.engine.annotations import check_annotations, without_checks

SOURCE = """
from jaxtyping import Float
from torch import Tensor, nn
def rows(x: Float[Tensor, "rows columns"], axis: int = 0) -> Float[Tensor, "rows"]:
    return x.sum(dim=1 - axis)
class Layer(nn.Module):
    def forward(self, x: Float[Tensor, "2"]) -> Float[Tensor, "2"]:
        return self.twice(x)
    @staticmethod
    def twice(x: Float[Tensor, "2"]) -> Float[Tensor, "2"]:
        return x.double().bool()
    halve = lambda self, x: x / 2
double = lambda x: 2 * x
"""


@pytest.fixture(scope="module")
def students(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("annotated")
    (folder / "annotated_module.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        check_annotations(["annotated_module"])
        yield importlib.import_module("annotated_module")


def test_each_kind_of_call_is_checked(students: ModuleType) -> None:
    assert students.rows(torch.ones(2, 3)).tolist() == [3, 3]
    assert students.rows(torch.ones(2, 3)).tolist() == [3, 3]
    for wrong in (torch.ones(3), torch.ones(2, 3, dtype=torch.int64), None):
        with pytest.raises(TypeCheckError, match=r"parameters of annotated_module\.rows"):
            students.rows(wrong)
    with pytest.raises(TypeCheckError, match=r"return value of annotated_module\.rows"):
        students.rows(torch.ones(2, 3), axis=1)  # another axis may give another shape
    assert students.rows(torch.ones(3, 3), axis=1).shape == (3,)


def test_methods_are_checked_and_without_checks_a_call_is_a_call(students: ModuleType) -> None:
    with without_checks():
        assert students.Layer()(torch.ones(2)).dtype == torch.bool
        assert students.rows(torch.ones(2, 3), axis=1).shape == (3,)
    with pytest.raises(TypeCheckError, match=r"return value of annotated_module\.Layer\.twice"):
        students.Layer()(torch.ones(2))


def test_functions_are_known_by_their_own_names(students: ModuleType) -> None:
    assert students.rows.__name__ == "rows"
    assert students.rows.__wrapped__.__code__.co_filename.endswith("annotated_module.py")


def test_a_function_without_annotations_is_left_alone(students: ModuleType) -> None:
    assert students.double(3) == 6
    assert students.Layer().halve(3) == 1.5
    assert not hasattr(students.double, "__wrapped__")
