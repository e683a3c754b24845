"""What the examination says of softmax: of every known mistake, of right ones, and of two mistakes at once."""

import math

import pytest
import torch
from torch import Tensor

from cs336_kit.examination.softmax import examine_softmax
from cs336_staff.release.verify import submission
from cs336_staff.tests.examination.blind import blind

ADAPTER = "run_softmax"


def ids(run) -> list[str]:
    return [found.id for found in examine_softmax(run)]


def sentences(run) -> str:
    return "\n".join(" ".join((f.measured, f.means, f.question)) for f in examine_softmax(run))


def zeros_for_nothing(x: Tensor, dim: int) -> Tensor:
    wide = x.float() if x.dtype.itemsize == 2 else x
    largest = wide.amax(dim, keepdim=True)
    e = torch.exp2((wide - largest.masked_fill(largest.isinf(), 0.0)) / math.log(2))
    total = e.sum(dim, keepdim=True)
    return (e / total.masked_fill(total == 0, 1.0)).to(x.dtype)


def shifted_by_a_bound(x: Tensor, dim: int) -> Tensor:
    """The maximum is enough within a few units: it need not be exact."""
    wide = x.float() if x.dtype.itemsize == 2 else x
    e = torch.exp(wide - wide.detach().amax(dim, keepdim=True).ceil())
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def renormalised_twice(x: Tensor, dim: int) -> Tensor:
    once = torch.softmax(x.float() if x.dtype.itemsize == 2 else x, dim)
    return (once / once.sum(dim, keepdim=True)).to(x.dtype)


@pytest.mark.parametrize("run", [zeros_for_nothing, shifted_by_a_bound, renormalised_twice])
def test_what_is_just_allowed_has_none(run):
    assert ids(run) == []


def test_the_numbers_are_those_of_this_function():
    text = sentences(lambda x, dim: torch.softmax(1.7 * x, dim))
    assert text.startswith("A logit that is larger by 1 gets 5.474 times the probability; it should get e = 2.718")
    assert "Your logits are multiplied by 1.7." in text
    text = sentences(submission("softmax-second-dim")[ADAPTER])
    assert "With dim=0 on shape (2, 3, 4) your answer sums to 1 over axis 1, and to" in text
    assert "Your denominator is larger than the sum by 1e-08." in sentences(submission("softmax-epsilon")[ADAPTER])


def test_what_raises_is_quoted_beside_what_works():
    found, _ = examine_softmax(submission("softmax-numpy")[ADAPTER])
    assert found.measured == (
        "Your function works for shape (3, 4) and dim=-1 and fails in bfloat16: "
        "`TypeError: Got unsupported ScalarType BFloat16`."
    )
    assert isinstance(found.error, TypeError)


def test_code_that_is_not_written_yet_has_no_findings():
    def run(x, dim):
        raise NotImplementedError

    assert examine_softmax(run) == []


def test_code_that_always_raises_has_one():
    (found,) = examine_softmax(lambda x: x)
    assert found.id == "softmax-fails"
    assert "in every other call that was tried: `TypeError:" in found.measured


def base_two_of_the_last_axis(x: Tensor, dim: int) -> Tensor:
    return torch.softmax(x * math.log(2), -1)


def unshifted_in_place(x: Tensor, dim: int) -> Tensor:
    return x.exp_().div_(x.sum(dim, keepdim=True))


def no_shift_with_epsilon(x: Tensor, dim: int) -> Tensor:
    e = x.exp()
    return e / (e.sum(dim, keepdim=True) + 1e-6)


def float32_of_the_whole_tensor(x: Tensor, dim: int) -> Tensor:
    e = torch.exp(x.float() - x.float().max())
    return (e / e.sum(dim, keepdim=True)).float()


@pytest.mark.parametrize(
    ("run", "both"),
    [
        (base_two_of_the_last_axis, {"softmax-axis-last", "softmax-base-2"}),
        (unshifted_in_place, {"softmax-no-shift", "softmax-in-place"}),
        (no_shift_with_epsilon, {"softmax-no-shift", "softmax-epsilon"}),
        (float32_of_the_whole_tensor, {"softmax-shift-whole-tensor", "softmax-dtype-always-float32"}),
    ],
)
def test_two_mistakes_are_both_found(run, both):
    assert both <= set(ids(run))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("softmax-clamped-logits", ["softmax-clamp"]),
        ("softmax-data-in-place", ["softmax-in-place"]),
        ("softmax-denominator-detached", ["softmax-gradient-wrong"]),
        ("softmax-float32-for-everything", ["softmax-float32-inside"]),
        ("softmax-max-along-last-axis", ["softmax-maximum-of-another-axis"]),
        ("softmax-movedim-back-wrong", ["softmax-shape-3d-first-dim"]),
        ("softmax-online-without-rescaling", ["softmax-order"]),
        ("softmax-shift-by-largest-magnitude", ["softmax-shift-magnitude"]),
    ],
)
def test_wrong_programs_of_others(program, expected):
    assert ids(blind(program, ADAPTER)) == expected


def test_the_examination_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    examine_softmax(lambda x, dim: torch.nn.functional.dropout(torch.softmax(x, dim), 0.1))
    assert torch.equal(torch.get_rng_state(), before)
