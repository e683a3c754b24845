"""What is told of code as it is really written: values inside `vmap`, constants, names that are swapped."""

import pytest

from staff.tests.locate.conftest import Explain, above
from staff.tests.locate.test_calls import ATTENTION, MULTIHEAD, list_marks
from staff.tests.locate.test_marks import BY_LOGARITHM, CALLED, HIDE, LOW, PROJECTIONS, TRIANGLE

ADDED = "torch.zeros(mask.shape).masked_fill(~mask, -1e9)"
ROTATION_INLINE = (
    "    rotation = Rotation(d_model // num_heads, theta, max_seq_len)\n",
    """    d, config = d_model // num_heads, {"theta": 10000.0, "given": theta}
    base = config["theta"]
    frequencies = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.arange(max_seq_len, dtype=torch.float64)[:, None] * frequencies
    table = torch.stack((angles.cos(), angles.sin())).to(in_features.dtype)

    def rotation(x, positions):
        cos, sin = table[:, positions]
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)

""",
)
PROJECTED = """q = x @ weights[0]
    k = x @ weights[1]
    v = x @ weights[2]
    q, k, v = (rearrange(each, "... n (h d) -> ... h n d", h=num_heads) for each in (q, k, v))"""


def test_a_step_that_is_missing_is_marked_where_a_value_is_only_handed_on(find_alone: Explain) -> None:
    handed = ("scores = scores.masked_fill(~mask,", "hides = mask.bool()\n        scores = scores.masked_fill(hides,")
    (finding,) = find_alone(ATTENTION, handed)
    assert finding.code[-2:] == ("    hides = mask.bool()", "            ^^^^")


def test_a_constant_in_the_place_of_a_number_of_the_adapter_is_told(find_alone: Explain) -> None:
    (finding,) = find_alone(MULTIHEAD, ROTATION_INLINE)
    assert list_marks([finding]) == ['config["theta"]']
    assert finding.said == ("Expected `theta`, 100; found 10000.",)
    assert finding.question == "How does this number come from the adapter to this line?"


def test_one_mistake_in_four_places_is_told_in_all_of_them(find_alone: Explain) -> None:
    found = find_alone(MULTIHEAD, (PROJECTIONS, PROJECTED), ("@ weights[3].T", "@ weights[3]"))
    assert list_marks(found) == ["x @ weights[0]", 'rearrange(heads, "... h n d -> ... n (h d)") @ weights[3]']
    assert found[0].likewise == tuple(found[0].line + i for i in (1, 2))
    assert found[1].proof == "With all of these corrected, all 22 failing tests pass."


def test_a_number_that_others_could_replace_as_well_is_not_told(find_alone: Explain) -> None:
    """The last block of keys is left out unless it is full: a bound that is d_k, by chance, takes in enough of them."""
    left_out = ("for j in range(0, keys, size):", "for j in range(0, keys - size + 1, size):")
    assert not [each.said for each in find_alone("blockwise_attention", left_out) if "d_k" in each.said[0]]


def test_two_slices_that_are_swapped_are_told_together(find_alone: Explain) -> None:
    """One projection for all three: also where the wrong one of them is rotated after that."""
    fused = """d, fused = x.shape[-1], x @ torch.cat(weights[:3]).T
    q = rearrange(fused[..., :d], "... n (h d) -> ... h n d", h=num_heads)
    k = rearrange(fused[..., 2 * d :], "... n (h d) -> ... h n d", h=num_heads)
    v = rearrange(fused[..., d : 2 * d], "... n (h d) -> ... h n d", h=num_heads)"""
    (finding,) = find_alone(MULTIHEAD, (PROJECTIONS, fused))
    assert list_marks([finding]) == ["fused[..., 2 * d :]"]
    assert finding.said == ("Expected the keys; found the values: the two are swapped.",)
    assert finding.likewise == (finding.line + 1,)


def test_a_helper_that_is_right_in_one_of_its_calls_is_marked_where_it_is_called_wrongly(find_alone: Explain) -> None:
    split = """def split(t, w):
        return rearrange(t @ w.T, "... n (h d) -> ... h n d", h=num_heads)
    q = split(x, weights[0])
    k = split(x, weights[2])
    v = split(x, weights[0])"""
    (finding,) = find_alone(MULTIHEAD, (PROJECTIONS, split))
    assert list_marks([finding]) == ["weights[2]"]
    assert finding.likewise == (finding.line + 1,)


def test_two_mistakes_of_one_function_are_known_where_it_is_called(find: Explain) -> None:
    """The second one is in what a closure is made with: no value shows that place."""
    closure = "make = lambda axis: lambda x: torch.exp(x - x.logsumexp(axis, keepdim=True).clamp_min(-1e30))"
    scores = "scores_of(Q.to(wide), K.to(wide), mask)"
    weigh, size = (f"run_softmax({scores}, -1)", f"make(-2)({scores})"), ("d_k = Q.shape[-1]", "d_k = Q.shape[-2]")
    *found, later = find([ATTENTION, MULTIHEAD], above("def scores_of", closure), weigh, size)
    assert list_marks(found) == ["Q.shape[-2]", "-2"]
    assert found[1].proof == "With one more or one less here, too, all 35 failing tests pass."
    assert later.is_of_earlier


def test_a_lambda_in_a_table_of_functions_is_followed(find_alone: Explain) -> None:
    table = above("def run_softmax", 'STEPS = {"sum": lambda x, dim: x.sum(-1, keepdim=True)}')
    (finding,) = find_alone("softmax", table, ("e.sum(dim, keepdim=True)", 'STEPS["sum"](e, dim)'))
    assert list_marks([finding]) == ["x.sum(-1, keepdim=True)"]
    assert finding.function == "<lambda>"


@pytest.mark.parametrize(("made", "hides"), [("", "triangle == 0"), (", dtype=torch.bool", "~triangle")])
def test_a_triangle_of_ones_that_have_a_name_is_marked(find_alone: Explain, made: str, hides: str) -> None:
    ones = f"    ones = torch.ones(length, length{made})\n    triangle = torch.triu(ones)\n"
    (finding,) = find_alone(MULTIHEAD, (f"    {TRIANGLE}", f"{ones}    mask = {hides}"))
    assert list_marks([finding]) == ["torch.triu(ones)"]
    assert finding.proof == "With the causal mask, inverted here, all 22 failing tests pass."


@pytest.mark.parametrize(
    ("low", "mark"),
    [
        ("scores.masked_fill(~mask, -1e9)", "scores.masked_fill(~mask, -1e9)"),
        ("torch.where(mask, scores, -1e9)", "torch.where(mask, scores, -1e9)"),
        (f"scores + {ADDED}", ADDED),
        (f"scores + (lambda mask: {ADDED})(mask).to(scores.dtype)", ADDED),
    ],
)
def test_a_low_number_in_place_of_infinity_is_marked_where_it_is_put(find_alone: Explain, low: str, mark: str) -> None:
    kept = ("return scores", "return torch.where(scores > 9e9, 0, scores)")
    assert list_marks(find_alone(ATTENTION, (f"scores.{HIDE}", low), kept))[0] == mark


def test_a_constant_at_the_top_of_a_file_is_marked_there(find_alone: Explain) -> None:
    (finding,) = find_alone(ATTENTION, LOW, (HIDE, "masked_fill(~mask, LOW)"))
    assert list_marks([finding]) == ["-1e9"]
    assert finding.function == "<module>"


def test_a_step_that_the_code_takes_further_down_is_not_missing(find_alone: Explain) -> None:
    """The maximum is subtracted, but not within the sum."""
    log = """def log_softmax(x, dim):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.logsumexp(x, dim, keepdim=True)"""
    called = (BY_LOGARITHM[0], "    return log_softmax(x, dim).exp().to(in_features.dtype)\n")
    (finding,) = find_alone("softmax", above("def run_softmax", log), called)
    assert list_marks([finding]) == ["x"]
    assert "    return shifted - torch.logsumexp(x, dim, keepdim=True)" in finding.code[1]


PARTNERS = """    def __call__(self, x, positions):
        feature = torch.arange(x.shape[-1])
        partner = (feature + x.shape[-1] // 2) % x.shape[-1]
        cos, sin = (each[positions].repeat_interleave(2, -1).to(x.dtype) for each in (self.cos, self.sin))
        return x * cos + torch.where(feature % 2 == 0, -1.0, 1.0).to(x.dtype) * x[..., partner] * sin"""


def test_a_call_of_what_no_proof_explains_refers_to_it(find: Explain) -> None:
    found = find(["rope", MULTIHEAD], (CALLED, PARTNERS))
    assert [each.id for each in found if each.file] == ["rope-unproved"]
    assert found[-1].said[0].endswith(": look there first.")


def test_an_axis_that_a_constructor_gets_is_marked_there(find_alone: Explain) -> None:
    layer = """class Softmax(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return soften(x, self.dim)


def run_softmax(in_features, dim):
    return Softmax(dim)(in_features)"""
    makes = ("    weights = run_softmax(scores_of", "    softmax = Softmax(-2)\n    weights = softmax(scores_of")
    edits = ("def run_softmax(", "def soften("), above("def scores_of", layer), makes, ("mask), -1)", "mask))")
    (finding,) = find_alone(ATTENTION, *edits)
    assert finding.code[-2].endswith("Softmax(-2)")
    assert finding.proof == "With one more or one less here, all 35 failing tests pass."
