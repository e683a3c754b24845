"""`cs336 compare`: which inputs differ from PyTorch's, and what is found of them."""

import pytest

from staff.tests.lab.conftest import Lab
from staff.tests.lab.test_debug import ATTENTION


def compare(lab: Lab, adapters: str, *arguments: str) -> str:
    result = lab("compare", *arguments, adapters=adapters)
    assert max(map(len, result.output.splitlines())) <= 80
    assert result.exit_code == ("differs" in result.output)
    return " ".join(result.output.split())


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
def test_right_attention(lab: Lab, seed: str) -> None:
    said = "On all 10 inputs your attention agrees with PyTorch's, gradients included."
    assert compare(lab, ATTENTION, "--seed", seed).endswith(said)


@pytest.mark.parametrize(
    ("old", "new", "differ", "found"),
    [
        (".nan_to_num()", "", "On 1 of 10 inputs your attention differs from PyTorch's: empty row.", "the weights"),
        ("-math.inf", "-2", "On 5 of 10 inputs your attention differs from PyTorch's: causal", "−2 where −inf belongs"),
        ("torch.softmax(scores, dim=-1)", "scores.exp() / scores.exp().sum(-1, True)", "empty row, large scores", ""),
        (".to(wide)", "", "On 1 of 10 inputs your attention differs from PyTorch's: float16.", ""),
        ("wide = ", "assert Q.shape[:-2] == K.shape[:-2]; wide = ", "differs from PyTorch's: shared K and V.", ""),
        ("V.to(wide)", "V.to(wide).detach()", "They differ in the gradients alone.", ""),
        (".to(Q.dtype)", ".to(Q.dtype).detach()", "They differ in the gradients alone.", ""),
        ("dim=-1", "dim=-2", "On 10 of 10 inputs your attention differs from PyTorch's.", "adapters.py:9, in run"),
        ("wide =", "1 / 0; wide =", "On 10 of 10 inputs your attention differs from PyTorch's. ZeroDivisionError", ""),
    ],
)
def test_it_says_which_inputs_differ_and_what_is_found(lab: Lab, old: str, new: str, differ: str, found: str) -> None:
    assert old in ATTENTION
    output = compare(lab, ATTENTION.replace(old, new))
    assert differ in output
    assert found in output
    assert "Think: " in output
