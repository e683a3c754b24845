"""A crash is told with what made it: the function without a `return`, arguments that are swapped, a wrong shape."""

import pytest

from staff.tests.locate.conftest import Explain

SOFTMAX, ATTENTION, LINEAR, ROPE = "softmax", "scaled_dot_product_attention", "linear", "rope"
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
MAKES = "def run_linear(d_in, d_out, weights, in_features):\n"
CALL = "    layer = Layer(d_out, d_in)\n    layer.load_state_dict({'weight': weights})\n    return layer(in_features)\n"
TABLE = "self.cos[positions].to(x.dtype)", "self.cos[positions].to(x.dtype).unsqueeze(1)"


@pytest.mark.parametrize(
    ("problem", "edits", "said", "line"),
    [
        pytest.param(
            ATTENTION,
            [SCORES],
            "`scores_of` in adapters.py:18 has no `return`, so it gives None.",
            "def scores_of(Q, K, mask):",
            id="a helper without a return",
        ),
        pytest.param(
            SOFTMAX,
            [("    return (e / torch.where", "    (e / torch.where")],
            "`run_softmax` in adapters.py:9 has no `return`, so it gives None.",
            "def run_softmax(in_features, dim):",
            id="an answer that is None",
        ),
        pytest.param(
            LINEAR,
            [(MAKES, LAYER), ("    return in_features @ weights.T\n", CALL)],
            "passes `d_out`, 7, for `d_in` of `def __init__(self, d_in, d_out)` in adapters.py:34.",
            "layer.load_state_dict({'weight': weights})",
            id="arguments in another order by their names",
        ),
        pytest.param(
            LINEAR,
            [
                (MAKES, LAYER),
                (
                    "    return in_features @ weights.T\n",
                    CALL.replace("(d_out, d_in)", "(weights.shape[0], weights.shape[1])"),
                ),
            ],
            "passes `weights.shape[0]`, 7, for `d_in` of `def __init__(self, d_in, d_out)` in adapters.py:34.",
            "layer.load_state_dict({'weight': weights})",
            id="arguments in another order by their sizes",
        ),
        pytest.param(
            "multihead_self_attention",
            [
                ("    length = x.shape[-2]\n", "    length = x.shape[-2] / 1\n"),
                ("torch.ones(length, length, dtype", "torch.ones((length, length), dtype"),
            ],
            "`length` is 7.0 since adapters.py:56, not a whole number: `/` gives a fraction, `//` does not.",
            "torch.ones((length, length), dtype=torch.bool)",
            id="a fraction where a whole number is needed",
        ),
        pytest.param(
            ROPE,
            [TABLE],
            "Among the calls that return, the answer is wrong in 1 of the 2 stored cases.",
            "self.cos[positions].to(x.dtype).unsqueeze(1)",
            id="what gives a tensor its shape, where some calls return",
        ),
        pytest.param(
            SOFTMAX,
            [("total = e.sum(dim, keepdim=True)", "total = e.sum(dim, keepdim=True)\n    e.mul_(1)")],
            "adapters.py:15 changes a tensor of this shape in place.",
            "e = torch.exp(x - largest)",
            id="which line changes what a gradient needs",
        ),
        pytest.param(
            LINEAR,
            [
                (MAKES, LAYER),
                (
                    "    return in_features @ weights.T\n",
                    "    layers = torch.nn.ModuleList([Layer(d_in, d_out)] * 3)\n"
                    "    given = {f'{i}.weight': weights + i for i in range(3)}\n"
                    "    return torch.func.functional_call(layers, given, in_features)\n",
                ),
            ],
            "`[Layer(d_in, d_out)] * 3`, holds one layer several times instead of several layers.",
            "torch.func.functional_call(layers, given, in_features",
            id="one layer three times",
        ),
    ],
)
def test_what_made_it_raise(find: Explain, problem: str, edits: list[tuple[str, str]], said: str, line: str) -> None:
    finding = find([problem], *edits)[0]
    assert any(each.endswith(said) for each in finding.said), finding.said
    assert line in "\n".join(finding.code)


def test_a_missing_return_is_one_finding_of_two_problems(find: Explain) -> None:
    edit = "    return (weights @ V.to(wide)).to(Q.dtype)", "    (weights @ V.to(wide)).to(Q.dtype)"
    first, later = find([ATTENTION, "multihead_self_attention"], edit)
    assert first.said[1] == "`run_scaled_dot_product_attention` in adapters.py:26 has no `return`, so it gives None."
    assert later.is_of_earlier


def test_a_value_of_another_shape_that_makes_a_line_raise_is_told_with_its_proof(find: Explain) -> None:
    edit = "torch.ones(length, length, dtype=torch.bool).tril()", "torch.ones(length, length + 1, dtype=torch.bool)"
    finding, *_ = find(["multihead_self_attention"], edit)
    assert finding.said[0].startswith("RuntimeError: ")
    assert finding.said[1].startswith("Expected the causal mask, of shape (7, 7); found shape (7, 8)")
    assert finding.proof.startswith("With the causal mask here, ")


@pytest.mark.parametrize(
    ("problem", "old", "new", "said"),
    [
        (ATTENTION, "        scores = scores.masked_fill(", "        scores.masked_fill(", "nothing uses it."),
    ],
)
def test_a_right_value_that_nothing_uses_is_pointed_at(
    find: Explain, problem: str, old: str, new: str, said: str
) -> None:
    (finding,) = find([problem], (old, new))
    assert finding.said[0].endswith(said), finding.said
