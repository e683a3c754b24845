"""Parts that do not fit together: the report names the adapter, the student's line, what came and what was expected."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from staff.tests import ROOT
from whichline.checking.text import Text
from whichline.engine.case import load_case
from whichline.engine.errors import StudentRaised
from whichline.engine.exception_report import ExceptionReport
from whichline.engine.failure import Failure, describe, shapes
from whichline.engine.result import Check

LINEAR = """
import torch
from torch import nn

class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))

    def forward(self, x):
        return x @ self.weight.T

def run_linear(d_in, d_out, weights, in_features):
    layer = Linear(d_in, d_out)
    {}
    return layer(in_features)
"""
GIVE_BACK = "What should this function give back, and in which line?"
SWAPPED = """@jaxtyping.jaxtyped(typechecker=beartype)
    def scale(x: Float[Tensor, "..."], size: int, dtype: torch.dtype = torch.float32):
        return x

    size, x = d_in, in_features
    return scale(size, x)"""


def report(tmp_path: Path, text: str) -> list[str]:
    """The report of a test on linear/3d: d_in 7, d_out 5."""
    error, _ = run_linear(tmp_path, text)
    return render(describe(error, tmp_path), shapes(load_case(ROOT / "fixtures", "linear/3d")))


def run_linear(tmp_path: Path, text: str) -> tuple[BaseException, Callable[..., object]]:
    """The error of that test, and the function that it called."""
    path = tmp_path / "adapters.py"
    path.write_text(text)
    names: dict = {"__name__": "adapters"}
    exec(compile(text, path, "exec"), names)  # noqa: S102
    case = load_case(ROOT / "fixtures", "linear/3d").copy()
    with pytest.raises(Exception) as caught:  # noqa: PT011
        case.check(names["run_linear"](case.d_in, case.d_out, case.weights, case.in_features))
    return caught.value, names["run_linear"]


def render(failure: Failure, inputs: tuple[str, ...] = ()) -> list[str]:
    """What the plugin prints of a failure."""
    return str(Text(failure.headline, (*failure.details, *inputs), ("tests/test_3_linear.py", 1))).splitlines()


# A mistake in the adapter, and lines that are said of it one after the other.
MISTAKES = {
    'layer.load_state_dict({"W": weights})': [
        "RuntimeError: Error(s) in loading state_dict for Linear:",
        "  the weights do not fit Linear",
        '    Linear expected "weight"',
        '    the adapter gave "W", in adapters.py:15',
        "  a key is the name of the attribute that holds the parameter, as in",
        "    self.weight -> weight",
        "  adapters.py:15, in run_linear",
        '      layer.load_state_dict({"W": weights})',
        "      here weights is (5, 7)",
        "  the case is linear/3d:",
        "    d_in         7",
        "    d_out        5",
        "    weights      (5, 7) float32",
        "    in_features  (2, 3, 7) float32",
        "    expected     (2, 3, 5) float32",
    ],
    'layer.load_state_dict({"weight": weights.T})': ["    weight: got [7, 5], expected [5, 7]: is it transposed?"],
    "layer = Linear(in_features=d_in, d_out=d_out)": [
        "TypeError: Linear.__init__() got an unexpected keyword argument 'in_features'",
        "  the definition is `def __init__(self, d_in, d_out)` in adapters.py:6",
    ],
    "layer = Linear(d_in)": ["  the definition is `def __init__(self, d_in, d_out)` in adapters.py:6"],
    "layer = Linear(d_in, d_out, None)": ["  the definition is `def __init__(self, d_in, d_out)` in adapters.py:6"],
    "layer.weights.data = weights": [
        "AttributeError: 'Linear' object has no attribute 'weights'",
        "  `Linear` has no `weights`; did you mean `weight`, which adapters.py:8 sets?",
        "  adapters.py:15, in run_linear",
        "      layer.weights.data = weights",
    ],
    "layer.kernel": ["  `Linear` has no `kernel`; it has weight", "  check its spelling, and whether __init__ sets it"],
    "from torch.nn import Lineal": ["  `torch.nn` has no `Lineal`; did you mean `Linear`?"],
    "from torch.nn import Qqq": ["  torch.nn does not define Qqq: is the name spelt the same in both files?"],
    "return in_feature @ weights.T": [
        "NameError: name 'in_feature' is not defined",
        "  there is no `in_feature`; did you mean `in_features`?",
    ],
    "layer = late\n    late = layer": ["  `late` gets a value in line 16 alone, which did not run before"],
    "return None.shape": ["  got None where something with `shape` was expected: is a `return` missing,"],
    "return None": ["the answer is None, expected a tensor: is a `return` missing?"],
    "return einsum(in_features, weights)": [
        "NameError: name 'einsum' is not defined",
        "  add `from einops import einsum` at the top of the file",
    ],
    "raise NotImplementedError": ["not implemented yet: write run_linear in adapters.py:15"],
    "raise NotImplementedError()": ["not implemented yet: write run_linear in adapters.py:15"],
    "raise NotImplementedError('todo')  # tomorrow": ["not implemented yet: write run_linear in adapters.py:15"],
    "return weights + torch.zeros(4)": ["  got sizes 7 and 4 along axis 1, expected equal sizes (or 1): name the axes"],
    "return in_features + in_features.mT": [
        "      return in_features + in_features.mT",
        "      here in_features is (2, 3, 7), in_features.mT is (2, 7, 3)",
    ],
    "return in_features @ weights": [
        "  got a product of (6, 7) and (5, 7), expected 7 = 5",
        "  the second would fit if it were transposed",
        "  adapters.py:15, in run_linear",
        "      return in_features @ weights",
        "      here in_features is (2, 3, 7), weights is (5, 7)",
    ],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_plain_words(tmp_path, mistake):
    lines, said = report(tmp_path, LINEAR.format(mistake)), MISTAKES[mistake]
    begins = lines.index(said[0])
    assert lines[begins : begins + len(said)] == said


def test_what_torch_says_of_a_boolean_mask_is_told(tmp_path):
    told = " ".join(line.strip() for line in report(tmp_path, LINEAR.format("return 1 - (weights > 0)")))
    assert told.startswith("NotImplementedError: Subtraction, the `-` operator, with a bool tensor is not supported.")
    assert "use the `~` or `logical_not()` operator instead" in told


def test_what_torch_does_not_implement_in_a_worker_is_not_a_stub():
    raised = StudentRaised("NotImplementedError", "\"bmm\" not implemented for 'Bool'", ())  # in a backward pass
    failure = describe(raised, Path())
    assert (failure.check, failure.headline) == (Check.CALL, "NotImplementedError: \"bmm\" not implemented for 'Bool'")


def test_no_frame_of_ours_and_no_line_too_long(tmp_path):
    mistakes = ("layer.nothing", "weights.view(3, 3)", "weights + torch.zeros(4)", "1 / 0", "in_features.bmm(weights)")
    for mistake in mistakes:
        lines = report(tmp_path, LINEAR.format(mistake))
        assert not [line for line in lines if "site-packages" in line or "whichline" in line or "_pytest" in line]
        assert "  adapters.py:15, in run_linear" in lines
        assert max(map(len, lines)) <= 80


def test_a_module_without_what_every_module_has(tmp_path):
    lines = report(tmp_path, LINEAR.format("pass").replace("super().__init__()", "pass").replace("nn.Parameter", ""))
    assert lines[1].startswith("  `Linear` has no `_backward_hooks`, as it is not set up: is")


@pytest.mark.parametrize("error", [SystemExit(None), StudentRaised("SystemExit", "None", ())], ids=["here", "remote"])
def test_a_line_that_ends_python(tmp_path, error):
    assert " ".join(" ".join(render(describe(error, tmp_path))).split()) == (
        'SystemExit: None this ends Python: leave it out, or put it below `if __name__ == "__main__":`, '
        "which holds only when you run the file itself"
    )


def test_an_assert_without_a_word(tmp_path):
    assert describe(AssertionError(), tmp_path) == Failure(Check.PROPERTY, "an assert in the test fails")


def test_an_object_that_cannot_be_looked_at(tmp_path):
    text = "class Odd:\n    def __dir__(self): raise ValueError\ndef run_linear(*inputs): return Odd().x\n"
    assert report(tmp_path, text)[0] == "AttributeError: 'Odd' object has no attribute 'x'"


def test_endless_recursion_is_shown_by_its_ends(tmp_path):
    lines = report(tmp_path, "def run_linear(*inputs):\n    return run_linear(*inputs)\n")
    assert lines[0].startswith("RecursionError")
    assert any(re.match(r"  \.\.\. and .* more times: what should end this recursion\?$", line) for line in lines)
    assert len(lines) < 20


def annotate(line: str) -> str:
    """The program with a line in its adapter, whose annotations are checked."""
    typed = """
import jaxtyping
from beartype import beartype
from jaxtyping import Float
from torch import Tensor

@jaxtyping.jaxtyped(typechecker=beartype)
def run_linear(d_in: int, d_out: int, weights: Float[Tensor, "d_out d_in"], in_features: Float[Tensor, "... d_in"]
) -> Float[Tensor, "... d_out"]:"""
    return LINEAR.format(line).replace("\ndef run_linear(d_in, d_out, weights, in_features):", typed)


@pytest.mark.parametrize(
    ("end", "said", "question"),
    [
        ("layer(in_features)", "run_linear returned None (is a return missing?)", GIVE_BACK),
        (SWAPPED, "scale got 7 for x", ""),
    ],
)
def test_what_an_annotation_finds_keeps_the_names_and_asks_what_fits(tmp_path, end, said, question):
    error, called = run_linear(tmp_path, annotate("pass").replace("return layer(in_features)", end))
    found = ExceptionReport(error, tmp_path, called)
    assert found.sentences[0].startswith(said)
    assert found.ask(end, "") == question


UNTYPED = {
    "return": ["run_linear returned None (is a return missing?)", "  expected a tensor (... d_out)"],
    "return in_features, 1": ["run_linear returned a tuple (return the tensor alone)"],
    "return layer": ["run_linear returned the module Linear (call it with its input)"],
    "return weights.numpy()": ["run_linear returned a NumPy array (stay with torch, or no gradient flows)"],
    "return weights > 0": ["run_linear returned a tensor of bool, expected float"],
    "return in_features": [
        "run_linear returned a tensor of shape (2, 3, 7), expected (... d_out)",
        "  axis d_out: got 7, expected 5, its size elsewhere in this call",
    ],
    "return run_linear(d_in, d_out, weights.mT, in_features)": [
        "run_linear got a tensor of shape (2, 3, 7) for in_features, expected (...",
        "d_in)",
        "  axis d_in: got 7, expected 5, its size elsewhere in this call",
        "  adapters.py:22, in run_linear",
    ],
    "return run_linear('7', d_out, weights, in_features)": ["run_linear got '7' for d_in", "  expected int"],
}


@pytest.mark.parametrize(("line", "told"), UNTYPED.items())
def test_a_value_without_the_type_of_its_annotation_is_told_in_two_lines(tmp_path, line, told):
    lines = report(tmp_path, annotate(line))
    assert lines[: len(told)] == told
    assert not [line for line in lines if "jaxtyping" in line or "Parameter annotations" in line]


def test_a_forward_that_is_misspelt_is_not_a_stub(tmp_path):
    lines = report(tmp_path, LINEAR.replace("def forward", "def foward").format("pass"))
    assert lines[0].startswith('NotImplementedError: Module [Linear] is missing the required "forward"')
    assert "  `Linear` has no `forward`; is the `foward` in adapters.py:10 meant?" in lines
