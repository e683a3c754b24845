"""`cs336 compare`: which inputs differ from PyTorch's, and what the examination finds."""

import pytest

from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tests.lab.test_debug import ATTENTION, find


def said(lab: Lab, adapters: str, *arguments: str) -> str:
    result = lab("compare", *arguments, adapters=adapters)
    assert max(map(len, result.output.splitlines())) <= 80
    assert result.exit_code == ("→" in result.output)
    return " ".join(result.output.split())


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
def test_right_attention(lab: Lab, seed: str) -> None:
    assert said(lab, ATTENTION, "--seed", seed).endswith(
        "On all 10 inputs your attention is PyTorch's, gradients included."
    )


@pytest.mark.parametrize(
    ("old", "new", "differ"),
    [
        (".nan_to_num()", "", "On 1 of 10 inputs your attention is not PyTorch's: empty row."),
        ("-math.inf", "-2.0", "On 5 of 10 inputs your attention is not PyTorch's: causal mask, random mask and empty"),
        ("torch.softmax(scores, dim=-1)", "scores.exp() / scores.exp().sum(-1, True)", "empty row, large scores and"),
        (".to(wide)", "", "On 1 of 10 inputs your attention is not PyTorch's: float16."),
        ("wide = ", "assert Q.shape[:-2] == K.shape[:-2]; wide = ", "your attention is not PyTorch's: shared K and V."),
        ("V.to(wide)", "V.to(wide).detach()", "They differ in the gradients alone."),
        (".to(Q.dtype)", ".to(Q.dtype).detach()", "They differ in the gradients alone."),
        ("dim=-1", "dim=-2", "On 10 of 10 inputs your attention is not PyTorch's."),
        ("wide =", "1 / 0; wide =", "On 10 of 10 inputs your attention is not PyTorch's. ZeroDivisionError"),
    ],
)
def test_it_says_which_inputs_differ_and_what_the_examination_finds(lab: Lab, old: str, new: str, differ: str) -> None:
    assert old in ATTENTION
    adapters = ATTENTION.replace(old, new)
    output = said(lab, adapters)
    assert differ in output
    assert find(adapters)[0].question in output
