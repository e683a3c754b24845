"""What is told of a broken contract, with its place, in a right program with mistakes written into it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import problems
from staff.tests.files import write_files
from staff.tests.locate.conftest import ATTENTION, LINEAR, ROPE, SOFTMAX, above, marked, run_source
from staff.tests.locate.test_places import REFERENCES
from whichline.engine.case import Case
from whichline.engine.compare import WrongAnswer
from whichline.engine.finding import Finding
from whichline.engine.result import Check
from whichline.engine.suite import Calls, Suite, Test
from whichline.locate.contract import find_breaches
from whichline.locate.diagnose import diagnose
from whichline.locate.observed import Observed
from whichline.locate.reference import Reference
from whichline.locate.run import Runner
from whichline_grader.authoring.programs import RIGHT_STYLES

WIDE = "x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))"
SUM = "total = e.sum(dim, keepdim=True)"
LAYER = "return in_features @ weights.T"
Write = Callable[..., Suite]
COPY = """layer = torch.nn.Linear(d_in, d_out, bias=False).to(in_features.dtype)
    {}
    return in_features @ layer.weight.T"""


def explain(suite: Suite, problem: str) -> list[Finding]:
    failing = [test for test in suite.tests if test.problem == problem and not suite.run(test).passed]
    assert failing
    return diagnose(suite, problem, failing, ())


BREACHES = {
    "not cast back": (
        (SOFTMAX, "1.0, total)).to(in_features.dtype)", "1.0, total))"),
        "e / torch.where(total == 0, 1.0, total)",
        "The answer is float32 where the inputs are bfloat16 or float16: nothing casts it back.",
        "With the dtype of the inputs here, both failing tests pass.",
    ),
    "cast at the end": (
        (LINEAR, LAYER, "return (in_features @ weights.T).double()"),
        "(in_features @ weights.T).double()",
        "This makes the answer float64 where the inputs are float32.",
        "With the dtype of the inputs here, all 5 failing tests pass.",
    ),
    "met by something wider": (
        (LINEAR, LAYER, "return in_features @ weights.T + torch.zeros(d_out, dtype=torch.float64)"),
        "in_features @ weights.T + torch.zeros(d_out, dtype=torch.float64)",
        "This is float64 where the inputs are float32, since `torch.zeros(d_out, dtype=torch.float64)` is float64.",
        "With `torch.zeros(d_out, dtype=torch.float64)` in the dtype of the inputs, all 5 failing tests pass.",
    ),
    "made in half precision": (
        (LINEAR, LAYER, "y = in_features @ weights.T\n    return torch.zeros(y.shape, dtype=torch.half).copy_(y)"),
        "torch.zeros(y.shape, dtype=torch.half)",
        "This is float16 where the inputs are float32, and so the answer is float16.",
        "With float32 here, all 5 failing tests pass.",
    ),
    "computed in float32": (
        (SOFTMAX, WIDE, "x = in_features.float()"),
        "in_features.float()",
        "This is float32 where the inputs are float64: the answer is right to 7 digits, and float64 has 16.",
        "With float64 here, the failing test passes.",
    ),
    "an epsilon": (
        (SOFTMAX, SUM, SUM + " + 1e-9"),
        "e.sum(dim, keepdim=True) + 1e-9",
        "This is right to 9 digits; float64 has 16.",
        "With all digits here, the failing test passes.",
    ),
    "half precision inside": (
        (ATTENTION, "scores_of(Q.to(wide), K.to(wide), mask)", "scores_of(Q, K, mask).to(wide)"),
        'einsum(Q, K, "... q d, ... k d -> ... q k")',
        "This is rounded to bfloat16, 2 digits, and the answer is computed from it.",
        "With all of it in float32, and one rounding at the end, both failing tests pass.",
    ),
    "a dtype left out of some": (
        (SOFTMAX, WIDE, "h = in_features.dtype in (torch.float16,)\n    x = in_features.float() if h else in_features"),
        "in_features.dtype in (torch.float16,)",
        "bfloat16 is none of the dtypes here, so it is not computed in float32.",
        "With bfloat16 among them, the failing test passes.",
    ),
    "one dtype of two": (
        (SOFTMAX, WIDE, "x = in_features.float() if in_features.dtype == torch.float16 else in_features"),
        "in_features.dtype == torch.float16",
        "bfloat16 is none of the dtypes here, so it is not computed in float32.",
        "With bfloat16 among them, the failing test passes.",
    ),
    "a dtype that a helper leaves out": (
        (SOFTMAX, WIDE, "dtype = in_features.dtype\n    x = in_features.float() if dtype in HALF else in_features"),
        "(torch.float16,)",
        "bfloat16 is none of the dtypes here, so it is not computed in float32.",
        "With bfloat16 among them, the failing test passes.",
    ),
    "detached": (
        (SOFTMAX, "e = torch.exp(x - largest)", "e = torch.exp(x.detach() - largest)"),
        "x.detach()",
        "No gradient goes back from here to `in_features`.",
        "With the graph kept here, both failing tests pass.",
    ),
    "under no_grad": (
        (SOFTMAX, SUM, "with torch.no_grad():\n        " + SUM),
        "e.sum(dim, keepdim=True)",
        "Autograd is off here: no gradient goes back from here to `in_features`.",
        "With the graph kept here, both failing tests pass.",
    ),
    "through numpy": (
        (SOFTMAX, "e / torch.where(total == 0, 1.0, total)", "torch.from_numpy((e / total).detach().numpy())"),
        "(e / total).detach()",
        "No gradient goes back from here to `in_features`.",
        "",
    ),
    "NaN that is hidden": (
        (
            ATTENTION,
            "weights = run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)",
            "scores = scores_of(Q.to(wide), K.to(wide), None)\n"
            "    scores = scores if mask is None else scores + torch.where(mask, 0.0, -math.inf)\n"
            "    weights = torch.softmax(scores, -1).nan_to_num()",
        ),
        "torch.softmax(scores, -1)",
        "28 of the 70 numbers here are NaN: the answer hides it, but the gradient does not.",
        "With the weights here, the failing test passes.",
    ),
    "in place": (
        (SOFTMAX, WIDE, f"{WIDE}\n    x.data -= x.amax(dim, keepdim=True)"),
        "x.data -= x.amax(dim, keepdim=True)",
        "This writes into `in_features`, which the caller still holds.",
        "",
    ),
    "random": (
        (LINEAR, LAYER, "return in_features @ weights.T + torch.rand(d_out)"),
        "torch.rand(d_out)",
        "This is random: with another seed the answer differs by up to ",
        "",
    ),
    "unwritten": (
        (ROPE, "        turned[..., 1::2] = first * sin + second * cos\n", ""),
        "torch.empty_like(x)",
        "35 of the 70 numbers of the answer come from this memory, to which nothing was written.",
        "",
    ),
    "remembers": (
        (SOFTMAX, SUM, "total = kept.setdefault(x.shape, e.sum(dim, keepdim=True).detach())"),
        "kept.setdefault(x.shape, e.sum(dim, keepdim=True).detach())",
        "This value is left over from an earlier call. Run first, the test passes.",
        "",
    ),
}


@pytest.mark.parametrize(("mistake", "place", "said", "proof"), BREACHES.values(), ids=BREACHES)
def test_a_breach_is_told_with_its_place(program: Write, mistake: tuple, place: str, said: str, proof: str) -> None:
    problem, old, new = mistake
    names = ("import torch\n", "import torch\n\nkept = {}\nHALF = (torch.float16,)\n")
    finding = explain(program((old, new), names), problem)[0]
    assert place.startswith(marked(finding).removesuffix(" …"))
    assert finding.said[0].startswith(said)
    assert finding.proof == proof


@pytest.mark.parametrize(
    ("table", "mark"),
    [
        ("{torch.float16: torch.float32}", "{torch.float16: torch.float32}"),
        ("{torch.float16: torch.float32, torch.bfloat16: torch.bfloat16}", "torch.bfloat16"),
    ],
)
def test_a_table_of_dtypes_that_leaves_one_as_it_is(program: Write, table: str, mark: str) -> None:
    named = ("import math\n\nimport torch\n", f"import math\n\nimport torch\n\nTABLE = {table}\n")
    looks = (WIDE, "x = in_features.to(TABLE.get(in_features.dtype, in_features.dtype))")
    (finding,) = explain(program(looks, named), SOFTMAX)
    assert (marked(finding), finding.line) == (mark, 7)
    assert finding.said == ("This leaves bfloat16 as it is, so it is not computed in float32.",)
    assert finding.proof == "With float32 for bfloat16, the failing test passes."


BY_HAND = """class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()

    @staticmethod
    def backward(ctx, slope):
        return slope

def run_softmax("""
SAVING = BY_HAND.replace("return x.exp()", "ctx.save_for_backward(x.exp())\n        return x.exp()")
USE = ("torch.exp(x - largest)", "Turn.apply(x - largest)")


def test_a_backward_pass_of_ones_own(program: Write) -> None:
    (finding,) = explain(program(("def run_softmax(", BY_HAND), USE), SOFTMAX)
    assert (marked(finding), finding.function) == ("slope", "Turn.backward")
    assert "of `Turn.apply(x - largest)`, " in finding.proof
    assert finding.said == ("`Turn.forward` gives the right numbers. The gradient from its `backward` is wrong.",)


def test_a_change_that_repairs_a_backward_pass_is_marked(program: Write) -> None:
    by_hand = SAVING.replace("return slope", "given = slope * ctx.saved_tensors[0]\n        return -given")
    (finding,) = explain(program(("def run_softmax(", by_hand), USE), SOFTMAX)
    assert (marked(finding), finding.function) == ("-given", "Turn.backward")
    assert finding.proof.startswith("With the opposite sign here, ")


def test_a_function_that_only_a_backward_pass_calls_is_repaired(program: Write) -> None:
    by_hand = SAVING.replace("return slope", "return turn_back(slope, ctx.saved_tensors[0])")
    turn_back = "def turn_back(slope, grown):\n    return slope / grown\n\n\n"
    (finding,) = explain(program(("def run_softmax(", turn_back + by_hand), USE), SOFTMAX)
    assert (marked(finding), finding.function) == ("slope / grown", "turn_back")
    assert finding.proof.startswith("With another operator here, ")


def test_a_factor_that_one_of_two_gradients_lacks_is_missed_where_that_is_set(program: Write) -> None:
    function = """class Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, share):
        ctx.save_for_backward(q, k)
        ctx.share = share
        return q @ k.mT * share

    @staticmethod
    def backward(ctx, slope):
        q, k = ctx.saved_tensors
        share = ctx.share
        of_q = share * (slope @ k)
        of_k = slope.mT @ q
        return of_q, of_k, None


def scores_of("""
    scores = 'einsum(Q, K, "... q d, ... k d -> ... q k") / math.sqrt(d_k)'
    (finding,) = explain(program(("def scores_of(", function), (scores, "Scores.apply(Q, K, d_k**-0.5)")), ATTENTION)
    assert (marked(finding), finding.function) == ("slope.mT @ q", "Scores.backward")
    assert finding.proof.startswith("With one more factor here, ")


@pytest.mark.parametrize("copy", ['layer.load_state_dict({"weight": weights})', "layer.weight.data = weights"])
def test_weights_that_are_copied(program: Write, copy: str) -> None:
    suite = program((LAYER, COPY.format(copy)))

    def check(case: Case) -> None:
        case.weights.requires_grad_()
        answer = suite.calls.run_linear(**case.inputs)
        if torch.autograd.grad(answer.sum(), case.weights, allow_unused=True) == (None,):
            raise WrongAnswer("the gradient is missing", Check.GRADIENT)

    test = replace(next(test for test in suite.tests if test.problem == LINEAR), call=check)
    (finding,) = diagnose(suite, LINEAR, [test], ())
    assert marked(finding) == copy
    assert finding.said == (
        "`weights` goes in here, and no gradient comes back to it from the answer.",
        "The numbers are copied into a parameter, and the graph ends there.",
    )
    assert finding.proof == "With the argument itself in place of the copy, the failing test passes."


def test_a_helper_that_rightly_cuts_one_graph_is_marked_where_it_cuts_another(program: Write) -> None:
    stop = above("def run_softmax", "def stop(x):\n    return x.detach()")
    largest = ("largest = x.amax(dim, keepdim=True)", "largest = stop(x.amax(dim, keepdim=True))")
    (finding,) = explain(program(stop, largest, (SUM, "total = stop(e.sum(dim, keepdim=True))")), SOFTMAX)
    assert marked(finding) == "stop(e.sum(dim, keepdim=True))"
    assert finding.proof == "With the graph kept here, both failing tests pass."


def test_what_the_code_keeps_is_there_afterwards(program: Write) -> None:
    scale = ("import math\n", "import math\n\nSCALE = {1: 2.0}\n")
    suite = program(scale, ("torch.exp(x - largest)", "SCALE[1] ** (x - largest)"))
    explain(suite, SOFTMAX)
    assert suite.calls.adapters.SCALE == {1: 2.0}


def test_what_is_told_beside_a_wrong_number(program: Write) -> None:
    edits = (WIDE, "x = in_features.float()"), ("torch.exp(x - largest)", "torch.exp((x - largest) * 2)")
    first, second = explain(program(*edits), SOFTMAX)
    assert first.said == ("Expected x − max; found 2 times that value.",)
    assert second.id == "softmax-float32-inside"
    assert " more of the " in second.proof


@pytest.mark.parametrize("style", sorted(RIGHT_STYLES))
def test_nothing_is_told_of_right_programs(public: Suite, style: str) -> None:
    suite = replace(public)
    suite.calls.adapters = SimpleNamespace(**RIGHT_STYLES[style])
    runner = Runner(suite, REFERENCES, Observed(suite.calls.adapters, lambda file: "right_programs" in file))
    assert find_breaches(runner, [test for test in suite.tests if test.problem in (SOFTMAX, ATTENTION, ROPE)]) == []


PROJECTION = """\
import torch

def run_projection(x, weights, activation):
    scaled = x * weights["scale"]  #: the scaled input
    return scaled.relu() if activation == "relu" else -scaled
"""
WRITES = """\
def run_projection(x, weights, activation):
    weights["scale"] *= 2
    return (x * weights["scale"] / 2).relu()
"""


@pytest.fixture
def projection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Runs a function that gets a dictionary, and text, and writes into the former."""
    write_files(tmp_path, {"projection/reference.py": PROJECTION})
    monkeypatch.setattr(problems, "__path__", [*problems.__path__, str(tmp_path)])
    path = tmp_path / "adapters.py"
    calls = Calls(run_source(WRITES, path))
    return Runner(
        Suite(tmp_path, {}, [], calls),
        {"run_projection": Reference("projection", "run_projection")},
        Observed(calls.adapters, lambda file: file == str(path)),
    )


def _make_arguments(activation: str, scale: float = 3.0) -> dict[str, object]:
    return {"x": torch.ones(4), "weights": {"scale": torch.full((4,), scale)}, "activation": activation}


def test_a_dictionary_that_is_written_into_is_told_and_kept_as_it_was(projection: Runner) -> None:
    case = Case("a", "run_projection", _make_arguments("relu"), None, {"answer": torch.full((4,), 3.0)})

    def check(case: Case) -> None:
        with case.unchanged_inputs():
            projection.suite.calls.run_projection(**case.inputs)

    test = Test("a", check, ("", 0), stored=lambda: case, problem="projection")
    assert projection.look(test).steps["the scaled input"].value.tensor.tolist() == [3.0] * 4
    (finding,) = find_breaches(projection, [test])
    assert finding.said == ("This writes into `weights`, which the caller still holds.",)
    assert marked(finding) == 'weights["scale"] *= 2'


def test_calls_that_differ_in_text_or_in_a_dictionary_have_steps_of_their_own(projection: Runner) -> None:
    calls = [_make_arguments("relu"), _make_arguments("none"), _make_arguments("relu", scale=5.0)]
    answers = [projection.know("run_projection", each).steps.answer.tolist() for each in calls]
    assert answers == [[3.0] * 4, [-3.0] * 4, [5.0] * 4]
    assert projection.know("run_projection", _make_arguments("none")) is projection.know("run_projection", calls[1])
