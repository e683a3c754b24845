"""What the examination says of softmax: of right ones, and in which words."""

import pytest
import torch
from torch import Tensor

from cs336_kit.problems.softmax.examination import examine_softmax
from cs336_staff.authoring.programs import wrong_submission


def ids(run) -> list[str]:
    return [found.id for found in examine_softmax(run)]


def sentences(run) -> str:
    return "\n".join(" ".join((f.measured, f.means, f.question)) for f in examine_softmax(run))


def shifted_by_a_bound(x: Tensor, dim: int) -> Tensor:
    """The maximum is enough within a few units: it need not be exact."""
    wide = x.float() if x.dtype.itemsize == 2 else x
    e = torch.exp(wide - wide.detach().amax(dim, keepdim=True).ceil())
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def renormalised_twice(x: Tensor, dim: int) -> Tensor:
    once = torch.softmax(x.float() if x.dtype.itemsize == 2 else x, dim)
    return (once / once.sum(dim, keepdim=True)).to(x.dtype)


@pytest.mark.parametrize("run", [shifted_by_a_bound, renormalised_twice])
def test_what_is_just_allowed_has_none(run):
    assert ids(run) == []


def divided(exponents: Tensor, dim: int, keepdim: bool = True) -> Tensor:
    e = torch.exp(exponents)
    return e / e.sum(dim, keepdim=keepdim)


def test_a_number_is_this_functions_and_no_digits_are_missed_for_it():
    (found,) = examine_softmax(lambda x, dim: torch.softmax(1.7 * x, dim))
    assert found.means.startswith(
        "Your logits are multiplied by 1.7. A program that is right but for this mistake gives your"
    )


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (lambda x, dim: divided(x - x.amax(dim), dim), ["keepdim-maximum"]),
        (lambda x, dim: divided(x - x.max(dim, keepdim=True).values, dim, keepdim=False), ["keepdim-sum"]),
        (lambda x, dim: divided(x - x.max(dim).values, dim, keepdim=False), ["keepdim-maximum", "keepdim-sum"]),
    ],
)
def test_keepdim_is_named_wherever_it_is_forgotten_and_the_crash_is_not_told_again(run, found):
    assert ids(lambda x, dim: run(x.double(), dim).to(x.dtype)) == [f"softmax-{id}" for id in found]
    assert sentences(run).count("Without keepdim=True, the") == len(found)


def test_the_maximum_along_one_axis_is_not_blamed_where_it_is_right():
    first, *_ = examine_softmax(lambda x, dim: divided(x - x.amax(0), dim))
    assert first.measured.startswith("For shape (3, 4) and dim=-1, ")
    assert first.means.startswith("You take the maximum along the first axis, whatever `dim` is.")


def test_what_rounding_does_is_not_explained_by_a_small_number():
    (found,) = examine_softmax(wrong_submission("softmax-half-inside")["run_softmax"])
    assert "your answer is off by up to 0.0003" in found.measured


def test_a_logarithm_of_softmax_is_named_however_it_is_computed():
    assert ids(lambda x, dim: (x.double() - x.double().logsumexp(dim, keepdim=True)).to(x.dtype)) == ["softmax-log"]


def test_what_raises_is_quoted_beside_what_works():
    found, _ = examine_softmax(wrong_submission("softmax-numpy")["run_softmax"])
    assert found.measured == (
        "Your function works for shape (3, 4) and dim=-1 and fails in bfloat16: "
        "`TypeError: Got unsupported ScalarType BFloat16`."
    )
    assert isinstance(found.error, TypeError)


def test_code_that_always_raises_has_one():
    (found,) = examine_softmax(lambda x: x)
    assert found.id == "softmax-fails"
    assert "in every other call that was tried: `TypeError:" in found.measured


def test_the_examination_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    examine_softmax(lambda x, dim: torch.nn.functional.dropout(torch.softmax(x, dim), 0.1))
    assert torch.equal(torch.get_rng_state(), before)
