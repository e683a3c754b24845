"""A crash is told with what made it: the function without a `return`, arguments that are swapped, a wrong shape."""

import pytest

from staff.tests.locate.conftest import ATTENTION, HEADS, LINEAR, ROPE, SOFTMAX, Explain

SCORES = "    return scores\n", "    scores\n"
LAYER = """
class Layer(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(d_out, d_in))

    def forward(self, x):
        return x @ self.weight.T


def run_linear(d_in, d_out, weights, in_features):
"""
ANSWER = "    return in_features @ weights.T\n"
MAKES = "def run_linear(d_in, d_out, weights, in_features):\n"
CALL = "    layer = Layer(d_out, d_in)\n    layer.load_state_dict({'weight': weights})\n    return layer(in_features)\n"
TABLE = "self.cos[positions].to(x.dtype)", "self.cos[positions].to(x.dtype).unsqueeze(1)"


CAUSES: dict[str, tuple[list[tuple[str, str]], tuple[str, str], str]] = {
    "a helper without a return": (
        [SCORES],
        (ATTENTION, "`scores_of` in adapters.py:18 has no `return`, so it gives None."),
        "def scores_of(Q, K, mask):",
    ),
    "an answer that is None": (
        [("    return (e / torch.where", "    (e / torch.where")],
        (SOFTMAX, "`run_softmax` in adapters.py:9 has no `return`, so it gives None."),
        "def run_softmax(in_features, dim):",
    ),
    "arguments in another order by their names": (
        [(MAKES, LAYER), (ANSWER, CALL)],
        (LINEAR, "passes `d_out`, 7, for `d_in` of `def __init__(self, d_in, d_out)` in adapters.py:34."),
        "layer.load_state_dict({'weight': weights})",
    ),
    "arguments in another order by their sizes": (
        [(MAKES, LAYER), (ANSWER, CALL.replace("(d_out, d_in)", "(weights.shape[0], weights.shape[1])"))],
        (LINEAR, "passes `weights.shape[0]`, 7, for `d_in` of `def __init__(self, d_in, d_out)` in adapters.py:34."),
        "layer.load_state_dict({'weight': weights})",
    ),
    "a fraction where a whole number is needed": (
        [
            ("    length = x.shape[-2]\n", "    length = x.shape[-2] / 1\n"),
            ("torch.ones(length, length, dtype", "torch.ones((length, length), dtype"),
        ],
        (HEADS, "`length` is 7.0 since adapters.py:56, not a whole number: `/` gives a fraction, `//` does not."),
        "torch.ones((length, length), dtype=torch.bool)",
    ),
    "what gives a tensor its shape, where some calls return": (
        [TABLE],
        (ROPE, "Among the calls that return, the answer is wrong in 1 of the 2 stored cases."),
        "self.cos[positions].to(x.dtype).unsqueeze(1)",
    ),
    "which line changes what a gradient needs": (
        [("total = e.sum(dim, keepdim=True)", "total = e.sum(dim, keepdim=True)\n    e.mul_(1)")],
        (SOFTMAX, "adapters.py:15 changes a tensor of this shape in place."),
        "e = torch.exp(x - largest)",
    ),
    "one layer three times": (
        [
            (MAKES, LAYER),
            (
                ANSWER,
                "    layers = torch.nn.ModuleList([Layer(d_in, d_out)] * 3)\n"
                "    given = {f'{i}.weight': weights + i for i in range(3)}\n"
                "    return torch.func.functional_call(layers, given, in_features)\n",
            ),
        ],
        (LINEAR, "`[Layer(d_in, d_out)] * 3`, holds one layer several times instead of several layers."),
        "torch.func.functional_call(layers, given, in_features",
    ),
}


@pytest.mark.parametrize(("edits", "told", "line"), CAUSES.values(), ids=CAUSES)
def test_what_made_it_raise(find: Explain, edits: list[tuple[str, str]], told: tuple[str, str], line: str) -> None:
    problem, said = told
    finding = find([problem], *edits)[0]
    assert any(each.endswith(said) for each in finding.said), finding.said
    assert line in "\n".join(finding.code)


def test_a_missing_return_is_one_finding_of_two_problems(find: Explain) -> None:
    edit = "    return (weights @ V.to(wide)).to(Q.dtype)", "    (weights @ V.to(wide)).to(Q.dtype)"
    first, later = find([ATTENTION, HEADS], edit)
    assert first.said[1] == "`run_scaled_dot_product_attention` in adapters.py:26 has no `return`, so it gives None."
    assert later.is_of_earlier


def test_a_value_of_another_shape_that_makes_a_line_raise_is_told_with_its_proof(find: Explain) -> None:
    edit = "torch.ones(length, length, dtype=torch.bool).tril()", "torch.ones(length, length + 1, dtype=torch.bool)"
    finding, *_ = find([HEADS], edit)
    assert finding.said[0].startswith("RuntimeError: ")
    assert finding.said[1].startswith("Expected the causal mask, of shape (7, 7); found shape (7, 8)")
    assert finding.proof.startswith("With the causal mask here, ")


def test_a_right_value_that_nothing_uses_is_pointed_at(find: Explain) -> None:
    edit = "        scores = scores.masked_fill(", "        scores.masked_fill("
    (finding,) = find([ATTENTION], edit)
    assert finding.said[0].endswith("nothing uses it."), finding.said
