"""`cs336 debug`: the marks before the student's lines, where NaN first appears, and what it says of any other call."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from lab.notebook import debug
from staff.tests.lab.conftest import Lab
from staff.tools.student import ROOT

PROGRAM = (ROOT / "staff/tests/locate/program.py").read_text()
# Attention in one function, with one thing to be changed by a test.
ATTENTION = """\
import math
import torch

def run_scaled_dot_product_attention(Q, K, V, mask=None):
    wide = torch.promote_types(Q.dtype, torch.float32)
    scores = Q.to(wide) @ K.to(wide).mT / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1).nan_to_num()
    return (weights @ V.to(wide)).to(Q.dtype)
"""
CAUSAL = ("--case", "attention/3d-causal")
NO_TRUTH = "mask (3, 5) float32 should be boolean, True = may attend: `mask.bool()` if yours is 1 where a query may "
NO_TRUTH += "attend, `mask == 0` if it is 0 there"


def saved(**changes: Tensor) -> str:
    """Write a call of 2 sequences, 3 queries and 5 keys, d_k 4 and d_v 6, with these changes."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"Q": (2, 3, 4), "K": (2, 5, 4), "V": (2, 5, 6)}
    tensors = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    save_file(tensors | changes, "call.safetensors")
    return "call.safetensors"


def lines(lab: Lab, *arguments: str, adapters: str = ATTENTION) -> list[str]:
    result = lab("debug", *arguments, adapters=adapters)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    return [line.rstrip() for line in result.output.splitlines()]


def words(lab: Lab, *arguments: str, adapters: str = ATTENTION) -> str:
    """The report, as one line."""
    return " ".join(" ".join(lines(lab, *arguments, adapters=adapters)).split())


def marks(lab: Lab, *arguments: str, adapters: str = ATTENTION) -> dict[str, str]:
    """The mark before each line of code."""
    shown = [line for line in lines(lab, *arguments, adapters=adapters) if line[2:6].strip().isdigit()]
    return {line[8:].strip(): line[0] for line in shown}


def changed(source: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert old in source
        source = source.replace(old, new, 1)
    return source


def test_without_a_call_it_lists_the_cases_of_all_problems_on_one_screen(lab: Lab) -> None:
    shown = lines(lab)
    assert shown[:2] == [
        "softmax/             1d 2d-first-dim 3d-first-dim 3d-last-dim 3d-middle-dim …",
        "  also softmax-gradients/ softmax-half-precision/ softmax-last-digit/",
    ]
    for folder in ("attention/", "linear/", "rope/", "multihead/", "multihead-rope-gradients/", "blockwise/"):
        assert folder in " ".join(shown).split()
    lists = "uv run cs336 debug --case softmax  lists all the cases of a folder"
    assert shown[-2:] == ["uv run cs336 debug --case softmax/1d", lists]
    assert len(shown) < 23  # a screen, with the command above and the prompt below


@pytest.mark.parametrize("folder", ["multihead", "multihead/"])
def test_of_a_folder_it_lists_all_cases(lab: Lab, folder: str) -> None:
    stored = sorted(f"multihead/{path.stem}" for path in (ROOT / "fixtures/multihead").iterdir())
    shown = lines(lab, "--case", folder)
    assert sorted(" ".join(shown[:-2]).split()) == stored
    assert shown[-2:] == ["", "uv run cs336 debug --case multihead/no-batch"]


def test_a_long_suggestion_is_wrapped_between_words(lab: Lab) -> None:
    result = lab("debug", "--case", "multihead_attention/padding-throughot")
    error = "Error: debug has no case multihead_attention/padding-throughot: is it"
    assert result.output.splitlines() == [error, "  multihead_attention/padding-throughout?"]


def test_a_right_call_line_by_line(lab: Lab) -> None:
    assert lines(lab, *CAUSAL) == [
        "One call of run_scaled_dot_product_attention: attention/3d-causal",
        "  Q     (2, 7, 11) float32, from -3.193 to 2.353",
        "  K     (2, 7, 11) float32, from -2.509 to 2.619",
        "  V     (2, 7, 13) float32, from -3.346 to 2.608",
        "  mask  (7, 7) bool, 57% True",
        "",
        "adapters.py, in run_scaled_dot_product_attention",
        "     5  wide = torch.promote_types(Q.dtype, torch.float32)",
        "✓    6  scores = Q.to(wide) @ K.to(wide).mT / math.sqrt(Q.shape[-1])",
        "     7  if mask is not None:",
        "✓    8      scores = scores.masked_fill(~mask, -math.inf)",
        "✓    9  weights = torch.softmax(scores, dim=-1).nan_to_num()",
        "✓   10  return (weights @ V.to(wide)).to(Q.dtype)",
        "",
        "Your answer matches the stored one. Nothing here looks wrong.",
    ]


CASES = ["softmax/3d-last-dim", "attention/4d-causal", "attention-nothing/3d", "linear/3d", "rope/per-batch"]
CASES += ["multihead/3d", "multihead-rope/spaced", "rope-gradients/spaced", "attention-half-precision/float16"]


@pytest.mark.parametrize("case", CASES)
def test_a_right_call_of_any_problem(lab: Lab, case: str) -> None:
    before = marks(lab, "--case", case, adapters=PROGRAM)
    assert list(before.values()).count("✓") > len(before) / 2
    assert not {"✗", "·"} & {*before.values()}
    assert words(lab, "--case", case, adapters=PROGRAM).endswith("one. Nothing here looks wrong.")


@pytest.mark.parametrize(
    ("case", "edit", "wrong", "follow", "right"),
    [
        (
            *("attention/3d-causal", ("math.sqrt(d_k)", "d_k")),
            *('scores = einsum(Q, K, "... q d, ... k d -> ... q k") / d_k', "return scores", "d_k = Q.shape[-1]"),
        ),
        (
            *("softmax/3d-middle-dim", ("e.sum(dim,", "e.sum(-1,"), "total = e.sum(-1, keepdim=True)"),
            *("return (e / torch.where(total == 0, 1.0, total)).to(in_features.dtype)", "e = torch.exp(x - largest)"),
        ),
        (
            *("multihead/3d", (".tril()", ".tril(-1)"), "mask = torch.ones(length, length, dtype=torch.bool).tril(-1)"),
            *("return scores", 'scores = einsum(Q, K, "... q d, ... k d -> ... q k") / math.sqrt(d_k)'),
        ),
        (
            *("rope/spaced", ("first * sin +", "first * sin -"), "turned[..., 1::2] = first * sin - second * cos"),
            *("return turned", "first, second = x[..., 0::2], x[..., 1::2]"),
        ),
        (
            *("multihead-rope/spaced", ("turn(q), turn(k)", "turn(q), k")),
            *("q, k = turn(q), k", "return scores", "return turned"),
        ),
    ],
)
def test_a_mistake_is_marked(lab: Lab, case: str, edit: tuple[str, str], wrong: str, follow: str, right: str) -> None:
    adapters = changed(PROGRAM, edit)
    before = marks(lab, "--case", case, adapters=adapters)
    assert [line for line, mark in before.items() if mark == "✗"] == [wrong]
    assert (before[follow], before.get(right, "✓")) == ("·", "✓")
    report = words(lab, "--case", case, adapters=adapters)
    assert "Your answer does not match the stored one: the answer is wrong in " in report
    assert "the failing test passes." in report


def test_a_value_that_is_no_known_step_has_no_mark(lab: Lab) -> None:
    odd = changed(ATTENTION, ("weights = torch", "scores = scores + scores.std() * 0.9\n    weights = torch"))
    assert marks(lab, "--case", "attention/3d-no-mask", adapters=odd)["scores = scores + scores.std() * 0.9"] == " "
    halved = changed(ATTENTION, ("(weights @", "((1 + (V.shape == (2, 5, 6))) * weights @"))
    assert "the answer is wrong in 36 of 36 places" in words(lab, saved(), adapters=halved)


def test_nothing_in_a_line_that_is_not_run(lab: Lab) -> None:
    before = marks(lab, saved())
    assert before["scores = scores.masked_fill(~mask, -math.inf)"] == " "
    assert before["weights = torch.softmax(scores, dim=-1).nan_to_num()"] == "✓"


def test_a_number_in_the_place_of_an_argument_that_nothing_reads(lab: Lab) -> None:
    before = marks(lab, "--case", "rope/small-theta", adapters=changed(PROGRAM, ("theta ** (", "10000.0 ** (")))
    (line,) = [line for line, mark in before.items() if mark == "✗"]
    assert line.startswith("frequencies = 10000.0 ** (")


def test_a_loop_is_shown_once_with_the_mark_of_its_first_wrong_time(lab: Lab) -> None:
    loop = """\
import torch

def run_softmax(in_features, dim):
    parts = []
    for x in in_features:
        parts.append(torch.softmax(x, -1) * SCALE)
    return torch.stack(parts)
"""
    first = "parts.append(torch.softmax(x, -1) * SCALE)"
    for scale, mark in (("1.0", "✓"), ("(1.0 + (len(parts) == 1))", "✗")):
        before = marks(lab, "--case", "softmax/3d-last-dim", adapters=loop.replace("SCALE", scale))
        assert before[first.replace("SCALE", scale)] == mark


def test_the_values_as_the_handout_works_them(lab: Lab) -> None:
    X = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
    mask = torch.ones(3, 3, dtype=torch.bool)
    mask[1, 2] = False
    save_file({"Q": X, "K": X.clone(), "V": X.clone(), "mask": mask}, "hand.safetensors")
    report = words(lab, "hand.safetensors", "--values")
    assert "Q (3, 4) float32, from 0 to 1 1.0000 0.0000 1.0000 0.0000 0.0000 1.0000 0.0000 1.0000" in report
    assert "the scaled scores (3, 3) float32, from 0 to 1 1.0000 0.0000 0.5000 0.0000 1.0000 0.5000 0.5000" in report
    assert "the masked, scaled scores (3, 3) float32, 0 NaN and 1 infinite, first at [1, 2]; else from 0 to" in report
    assert "1.0000 0.0000 0.5000 0.0000 1.0000 -inf 0.5000 0.5000 1.0000" in report
    assert "the weights (3, 3) float32, from 0 to 0.7311 0.5065 0.1863 0.3072 0.2689 0.7311 0.0000" in report
    assert "0.8137 0.4935 0.5065 0.1863" in report
    assert "0.5065" not in words(lab, "hand.safetensors")


def test_a_large_case_prints_no_matrices(lab: Lab) -> None:
    wide = {name: torch.randn(9, 9, generator=torch.Generator().manual_seed(0)) for name in "QKV"}
    assert max(len(line.split()) for line in lines(lab, saved(**wide), "--values")) < 20


def test_leading_dimensions_that_broadcast(lab: Lab) -> None:
    shared = {"K": torch.ones(1, 5, 4), "V": torch.eye(5)[None], "mask": torch.ones(2, 1, 5, dtype=torch.bool)}
    assert words(lab, saved(**shared)).endswith("Nothing here looks wrong.")


def test_the_gradients_of_a_case_are_compared_too(lab: Lab) -> None:
    cut = changed(ATTENTION, ("V.to(wide)", "V.to(wide).detach()"))
    report = words(lab, "--case", "attention-gradients/3d-no-mask", adapters=cut)
    assert "the answer does not depend on V: its gradient is missing" in report
    assert "✗ 10" in report


def test_where_nan_or_infinity_first_appears(lab: Lab) -> None:
    by_hand = ("torch.softmax(scores, dim=-1).nan_to_num()", "scores.exp() / scores.exp().sum(-1, True)")
    report = words(lab, saved(Q=torch.full((2, 3, 4), 500.0)), adapters=changed(ATTENTION, by_hand))
    assert "Infinity first appears in line 9 of adapters.py: `scores.exp()`" in report
    assert "the answer is NaN or infinite in" in report
    nothing = changed(PROGRAM, ("    largest = torch.where(largest == -math.inf, 0.0, largest)\n", ""))
    report = words(lab, "--case", "attention-nothing/3d", adapters=nothing)
    assert "NaN first appears in line 12 of adapters.py: `x - largest`" in report
    assert "0 where that is −inf here, the failing test passes." in report


@pytest.mark.parametrize("name", "QKV")
def test_inputs_that_are_not_finite(lab: Lab, name: str) -> None:
    x = torch.ones(2, 3, 4)
    x[1, 2, 0], x[1, 2, 1] = torch.nan, torch.inf
    report = words(lab, saved(**{other: torch.ones(2, 3, 4) for other in "QKV"} | {name: x}))
    assert f"{name} (2, 3, 4) float32, 1 NaN and 1 infinite, first at [1, 2, 0]; else from 1 to 1" in report
    assert f"Look at what made {name}: with NaN or infinity in it, attention has no right answer." in report


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mask": torch.ones(5) > 0}, "mask (5,) bool does not fit what is before it: it should be boolean, and of"),
        ({"mask": torch.ones(3, 5).tril()}, NO_TRUTH),
        ({"mask": torch.zeros(3, 5).masked_fill(torch.ones(3, 5).triu(1) > 0, -1e9)}, NO_TRUTH),
        ({"mask": torch.ones(5, 3) > 0}, "and of the shape (..., queries, keys). Is it transposed, or of another"),
        ({"Q": torch.ones(2, 3, 7)}, "K (2, 5, 4) float32 does not fit what is before it: it should be of one float"),
        ({"V": torch.ones(2, 3, 6)}, "V (2, 3, 6) float32 does not fit what is before it: it should be of one float"),
        ({"Q": torch.ones(4)}, "Q (4,) float32 does not fit"),
        ({"Q": torch.ones(2, 0, 4)}, "Q (2, 0, 4) float32 has no numbers: there is nothing to look at"),
        ({"Q": torch.ones(2, 3, 4).long()}, "Q (2, 3, 4) int64 does not fit"),
        ({"Q": torch.ones(2, 3, 4).half()}, "K (2, 5, 4) float32 does not fit"),
        ({"Q": torch.ones(3, 3, 4)}, "K (2, 5, 4) float32 does not fit"),
    ],
)
def test_arguments_that_do_not_fit_together(lab: Lab, changes: dict[str, Tensor], said: str) -> None:
    report = words(lab, saved(**changes))
    assert said in report
    assert "adapters.py" not in report


def test_an_error_comes_after_the_lines_up_to_it(lab: Lab) -> None:
    adapters = changed(PROGRAM, ("k d -> ... q k", "d k -> ... q k"))
    assert marks(lab, *CAUSAL, adapters=adapters) == {
        "wide = torch.promote_types(Q.dtype, torch.float32)": " ",
        "weights = run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)": " ",
        "d_k = Q.shape[-1]": "✓",
        'scores = einsum(Q, K, "... q d, ... d k -> ... q k") / math.sqrt(d_k)': "✗",
    }
    report = words(lab, *CAUSAL, adapters=adapters)
    assert "RuntimeError: einsum(): subscript b has size 7" in report
    assert "Traceback" not in report


def test_what_is_still_to_be_written(lab: Lab) -> None:
    unwritten = "def run_scaled_dot_product_attention(Q, K, V, mask=None):\n    raise NotImplementedError\n"
    report = words(lab, *CAUSAL, adapters=unwritten)
    assert report.endswith("not implemented yet: write run_scaled_dot_product_attention in adapters.py:2")
    assert "can be followed" not in report


def test_code_that_cannot_be_imported_twice(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.once", 0, raising=False)
    monkeypatch.delattr("sys.once")
    once = "import sys\nassert not hasattr(sys, 'once'), 'twice'\nsys.once = True\n"
    result = lab("debug", *CAUSAL, adapters=once + ATTENTION)
    said = "Error: your lines cannot be marked: the code cannot be imported a second time: AssertionError: twice\n"
    assert (result.exit_code, result.stderr) == (1, said)


def test_what_is_hidden_from_sight(lab: Lab) -> None:
    built_in = "from torch.nn.functional import scaled_dot_product_attention as run_scaled_dot_product_attention"
    assert "Nothing of this call can be followed" in words(lab, *CAUSAL, adapters=built_in)
    by_numpy = changed(ATTENTION, ("torch.softmax(scores, dim=-1)", "torch.tensor(scores.softmax(-1).numpy())"))
    line = "weights = torch.tensor(scores.softmax(-1).numpy()).nan_to_num()"
    assert marks(lab, *CAUSAL, adapters=by_numpy)[line] == "✓"


@pytest.mark.parametrize(
    ("dim", "mark", "end"),
    [
        (-1, "✓", "Your answer matches PyTorch's own, in float64. Nothing here looks wrong.\n"),
        (-2, "✗", "With the weights here, the failing test passes.\n"),
    ],
)
def test_ones_own_function(tmp_path: Path, capsys: pytest.CaptureFixture[str], dim: int, mark: str, end: str) -> None:
    path, source = tmp_path / "own.py", changed(ATTENTION, ("dim=-1", f"dim={dim}"))
    path.write_text(source)
    namespace: dict = {}
    exec(compile(source, str(path), "exec"), namespace)  # noqa: S102 (the program above)
    Q = torch.randn(3, 4)
    debug(Q, Q, Q, attention=namespace["run_scaled_dot_product_attention"])
    report = capsys.readouterr().out
    assert "own.py, in run_scaled_dot_product_attention\n" in report
    assert f"{mark}    9  weights = torch.softmax(scores, dim={dim}).nan_to_num()" in report
    assert end in report


def test_what_an_import_changes_for_all_code_is_undone_as_in_the_tests(lab: Lab) -> None:
    setting = "import torch\ntorch.set_default_dtype(torch.float64)\n"
    assert words(lab, *CAUSAL, adapters=setting + ATTENTION).endswith("Nothing here looks wrong.")
    assert torch.get_default_dtype() == torch.float32


def test_annotations_are_checked_as_in_the_tests(lab: Lab) -> None:
    imports, narrow = "from jaxtyping import Float\nfrom torch import Tensor\n", "Q: Float[Tensor, 'keys d'], K, V"
    report = words(lab, *CAUSAL, adapters=imports + changed(ATTENTION, ("Q, K, V", narrow)))
    assert "run_scaled_dot_product_attention got a tensor of shape (2, 7, 11) for Q, expected (keys d)" in report


def test_nothing_is_compiled(lab: Lab) -> None:
    compiled = "@torch.compile(backend=lambda *_: 1 / 0)\ndef run"
    assert words(lab, *CAUSAL, adapters=changed(ATTENTION, ("def run", compiled))).endswith("Nothing here looks wrong.")


def test_a_call_without_numbers(lab: Lab) -> None:
    file = saved(Q=torch.ones(2, 0, 4), mask=torch.ones(0, 5, dtype=torch.bool))
    output = lab("debug", file, "--values", adapters=ATTENTION).output
    assert "  Q     (2, 0, 4) float32, no numbers\n" in output
    assert "  mask  (0, 5) bool, no numbers\n" in output
    shown = lab("show", file)
    said = "Error: Q (2, 0, 4) float32 has no numbers: there is nothing to look at\n"
    assert (shown.exit_code, shown.output) == (2, said)
