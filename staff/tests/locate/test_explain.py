"""Explanations of the tests that fail: what comes first, what is said of a later problem, and how much is told."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from staff.tests.locate.conftest import ATTENTION, Explain, above, marked
from staff.tests.locate.test_calls import LOW, MULTIHEAD, NO_SCALE, list_marks
from staff.tests.locate.test_repair import ANGLES, POLAR, TURNED
from whichline.engine.finding import Finding
from whichline.engine.suite import Suite
from whichline.locate.explain import describe_errors, explain, find
from whichline.locate.numbers import find_numbers
from whichline.locate.source_location import find_same

RAISES = ("    if mask is not None:\n        scores", "    if True:\n        scores")

MISTAKES = [
    ("softmax", "test_softmax", ("e.sum(dim,", "e.sum(-1,"), "e.sum(-1, keepdim=True)"),
    (ATTENTION, "test_scaled_dot_product_attention", LOW, "scores.masked_fill(~mask, -1e9)"),
    (ATTENTION, "test_4d_scaled_dot_product_attention", ("~mask, -math", "mask, -math"), "mask"),
    ("linear", "test_linear", ("weights.T\n", "weights.T + 1\n"), "in_features @ weights.T + 1"),
    (MULTIHEAD, "test_multihead_self_attention", ("q, k, v = (rearr", "k, q, v = (rearr"), "k"),
    (MULTIHEAD, "test_multihead_self_attention", NO_SCALE, 'einsum(Q, K, "... q d, ... k d -> ... q k")'),
]


GROW = "def grow(total, before, largest, more):\n    shrink = torch.exp(before - largest)\n    return total + more"
IN_TWO = """    first, rest = x.narrow(dim, 0, 1), e.narrow(dim, 1, x.shape[dim] - 1)
    total = grow(torch.ones_like(first), first, largest, rest.sum(dim, keepdim=True))"""


def test_what_only_explains_tests_beside_a_new_mistake_is_not_said_to_explain_them(find: Explain) -> None:
    found = find(
        ["softmax", "blockwise_attention"],
        above("def run_softmax", GROW),
        ("    total = e.sum(dim, keepdim=True)", IN_TWO),
        ("shrink * total + e.sum(-1, keepdim=True)", "grow(total, before, largest, e.sum(-1, keepdim=True))"),
        ("e @ V[..., j : j + size, :]", "e @ V.narrow(-2, 0, e.shape[-1])"),
    )
    assert [(marked(each), each.also) for each in found] == [("total", ()), ("V.narrow(-2, 0, e.shape[-1])", ())]


def test_what_is_not_proved_is_not_said_to_explain_the_tests_of_another_problem(find: Explain) -> None:
    constant, sign = ("frequencies = theta **", "frequencies = 10000.0 **"), ("first * sin +", "first * sin -")
    unread, later = find(["rope", MULTIHEAD], constant, sign)
    assert (unread.id, unread.also) == ("rope-unread-theta", ())
    assert re.fullmatch(r"For .* of Causal multi-head self-attention, look at adapters.py:\d+ first.", later.said[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "selected", "edit", "place"),
    [*MISTAKES[:3], *(pytest.param(*each, marks=pytest.mark.nightly) for each in MISTAKES[3:])],
)
def test_whatever_was_selected_the_same_place_is_named(
    program: Callable[..., Suite], of: str, selected: str, edit: tuple[str, str], place: str
) -> None:
    """By `pytest -k TEST`, by one test clicked in an editor, and by `check PROBLEM`, as by a run of all tests."""
    suite = program(edit)
    until = list(suite.problems).index(of) + 1
    results = [suite.run(test) for test in suite.tests if test.problem in list(suite.problems)[:until]]
    full = explain(suite, results)
    assert place.startswith(marked(full[0]).removesuffix(" …"))
    named = [each for each in results if each.function == selected]
    assert list_places(explain(suite, named)) == list_places(full)
    assert list_places(explain(suite, [each for each in named if not each.passed][:1])) == list_places(full)
    assert list_places(explain(suite, [each for each in results if each.problem == of], 1, {of})) == list_places(full)


def list_places(found: list[Finding]) -> list[object]:
    """What is said, and where, of each place."""
    return [(each.said, each.file, each.line, each.columns) for each in found if not each.is_of_earlier]


def test_where_the_selected_tests_pass_nothing_more_is_run(program: Callable[..., Suite]) -> None:
    suite = program(("d_k = Q.shape[-1]", "d_k = Q.shape[-1]\n    assert 0"))
    results = [suite.run(test) for test in suite.tests if test.problem == "softmax"]
    suite.calls.made.clear()
    assert explain(suite, results) == []
    assert not suite.calls.made


def test_of_selected_tests_only_what_concerns_them_is_told(program: Callable[..., Suite]) -> None:
    """Without a mask the call raises; with one, it gives wrong numbers."""
    suite = program(RAISES, NO_SCALE)
    masked = next(test for test in suite.tests if test.name == "test_scaled_dot_product_attention[3d-random-mask]")
    (finding,) = explain(suite, [suite.run(masked)])
    assert finding.said == ("Expected the scaled scores; found the scores.",)


def test_a_wrong_table_that_a_constructor_makes_explains_all_tests_of_its_callers(find: Explain) -> None:
    (finding,) = find([MULTIHEAD], ("torch.arange(0, d, 2,", "torch.arange(d // 2,"))
    assert marked(finding) == "torch.arange(d // 2, dtype=torch.float64)"
    assert finding.proof.endswith("all 12 failing tests pass.")


def test_nothing_is_told_of_what_is_right_or_not_written(find: Explain) -> None:
    unwritten = ("    return in_features @ weights.T", "    raise NotImplementedError")
    assert find(["softmax", ATTENTION, "linear"], unwritten) == []


def test_tests_of_two_problems_that_lead_to_one_place_are_told_once(find: Explain) -> None:
    attention, multihead = find([ATTENTION, MULTIHEAD], NO_SCALE)
    assert attention.said == ("Expected the scaled scores; found the scores.",)
    assert attention.also == ("all 19 failing tests of Causal multi-head self-attention",)
    assert "It also explains all 19 failing tests of Causal multi-head self-attention." in attention.lines
    assert multihead.is_of_earlier
    assert multihead.said == ("adapters.py:20 explains all 19 failing tests of Causal multi-head self-attention, too.",)


def test_another_error_at_a_place_that_is_told_is_told_as_well(find: Explain) -> None:
    """In half precision the answer is float32; and the vectors of heads, which are not contiguous, have no 9 axes."""
    edit = "(weights @ V.to(wide)).to(Q.dtype)", "(weights @ V.to(wide))[... if Q.is_contiguous() else (0,) * 9]"
    attention, heads = find([ATTENTION, MULTIHEAD], edit)
    assert (attention.file, attention.line, attention.columns) == (heads.file, heads.line, heads.columns)
    assert "float32" in attention.said[0]
    assert heads.said[0].startswith("IndexError: too many indices for tensor of dimension ")


@pytest.mark.parametrize(
    ("line", "step", "is_told"),
    [
        (3, "the scaled scores", True),
        (5, "the scaled scores", True),
        (4, "the scaled scores", False),
        (3, "the masked, scaled scores", False),
        (3, "", False),
    ],
    ids=["there", "likewise", "elsewhere", "another step", "no number"],
)
def test_what_is_told_of_an_earlier_problem_is_a_place_and_what_it_says(line: int, step: str, is_told: bool) -> None:
    earlier = Finding(ATTENTION, "", ("found",), "adapters.py", 3, likewise=(5,), section="3", step="the scaled scores")
    later = Finding(MULTIHEAD, "", ("found",), "adapters.py", line, section="3", step=step)
    assert (find_same(later, [earlier]) is earlier) == is_told


def test_a_file_that_cannot_be_imported_is_told_once(find: Explain, tmp_path: Path) -> None:
    table = f'exec(compile("\\n\\nTABLE = size", "{tmp_path}/cs336_basics/table.py", "exec"))'
    softmax, *others = find(
        ["softmax", ATTENTION, "linear", "rope"],
        ("    x = in_features.to(", f"    {table}\n    x = in_features.to("),
        ("    return Rotation(d_k", f"    {table}\n    return Rotation(d_k"),
    )
    assert (softmax.file, softmax.line) == ("cs336_basics/table.py", 3)
    assert softmax.said == (
        "NameError: name 'size' is not defined",
        "cs336_basics/table.py cannot be imported: no test that needs it can run.",
    )
    assert [each.said for each in others] == [
        ("Scaled dot-product attention could not run: the same file cannot be imported.",),
        ("Rotary position embedding could not run: the same file cannot be imported.",),
    ]


BY_HAND = """\
class ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Q, K, V, *others):
        ctx.others = others
        ctx.save_for_backward(Q, K, V)
        return attend_by_blocks(Q, K, V, *others)

    @staticmethod
    def backward(ctx, gradient):
        given = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            loss = (attend_by_blocks(*given, *ctx.others) * gradient).sum()
        return *torch.autograd.grad(loss, given), None, None

def run_blockwise_attention(Q, K, V, mask=None, block_size=None):
    return ByHand.apply(Q, K, V, mask, block_size)

def attend_by_blocks(Q, K, V, mask, block_size):
"""


def test_what_only_a_backward_pass_repeats_of_an_earlier_mistake_is_no_mistake_of_its_own(find: Explain) -> None:
    blockwise = "def run_blockwise_attention(Q, K, V, mask=None, block_size=None):\n", BY_HAND
    _, later = find([ATTENTION, "blockwise_attention"], NO_SCALE, blockwise)
    assert later.said == ("adapters.py:20 explains 21 failing tests of Blockwise attention, too.",)


def test_a_later_problem_with_a_mistake_of_its_own_is_told_of_that(find: Explain) -> None:
    own = ('rearrange(heads, "... h n d -> ... n (h d)")', 'rearrange(heads, "... h n d -> ... n (d h)")')
    attention, again, heads = find([ATTENTION, MULTIHEAD], NO_SCALE, own)
    assert (attention.problem, attention.also) == (ATTENTION, ())
    assert (again.problem, again.line, again.proof) == (MULTIHEAD, attention.line, "")
    assert heads.said == (
        "Expected the heads side by side; found the same numbers in another order along axis −1: "
        "0, 8, 16, 1, … in place of 0, 1, 2, 3, ….",
    )
    assert heads.proof == "With these two corrected, all 21 failing tests pass."


@pytest.mark.parametrize(
    ("problems", "edits", "mark"),
    [
        ([ATTENTION, MULTIHEAD, "decoding"], [(", mask), -1)", ", mask), -2)")], "-2)"),
        (["rope", MULTIHEAD, "decoding"], [ANGLES, (TURNED, POLAR)], "pairs / "),
    ],
    ids=["a value", "a change of the code"],
)
def test_what_one_problem_proved_is_tried_first_in_the_next_ones(
    find: Explain, monkeypatch: pytest.MonkeyPatch, problems: list[str], edits: list[tuple[str, str]], mark: str
) -> None:
    search = Mock(wraps=find_numbers)
    monkeypatch.setattr("whichline.locate.diagnose.find_numbers", search)
    first, *later = find(problems, *edits)
    assert mark in list_marks([first])[0]
    assert [each.is_of_earlier for each in later] == [True, True]
    assert [call.args[1][0].problem for call in search.call_args_list] == problems[:1]


def test_what_raises_comes_first_and_the_rest_is_followed_all_the_same(find: Explain) -> None:
    crash, number = find([ATTENTION], RAISES, NO_SCALE)
    assert "AttributeError" in crash.said[0] or "TypeError" in crash.said[0]
    assert "This raises in every call where `mask` is None, and in no other." in crash.said
    assert number.said == ("Expected the scaled scores; found the scores.",)
    assert not set(crash.tests) & set(number.tests)


def test_where_no_place_is_proved_it_is_said_in_which_calls_the_answer_is_wrong(find: Explain) -> None:
    edit = "    wide =", "    if Q.ndim == 2:\n        V = V.roll(1, -1) + Q.sum()\n    wide ="
    (finding,) = find([ATTENTION], edit)
    assert finding.said[0].startswith("The answer is wrong in every stored case where `Q`")


def test_nan_in_rows_that_see_nothing_is_asked_about_as_that(find: Explain) -> None:
    (finding,) = find([ATTENTION], ("run_softmax(scores_of(", "torch.softmax(scores_of("))
    assert "found NaN in" in finding.said[0]
    assert finding.question.startswith("Which numbers give NaN here: 0 / 0, or −inf − (−inf)?")


def test_what_a_call_does_not_pass_is_not_said_of_a_function_of_torch(find: Explain) -> None:
    own = ("def scores_of(", "def softmax(x, dim, mask=None):\n    return x\n\n\ndef scores_of(")
    torchs = ("run_softmax(scores_of(", "torch.softmax(scores_of(")
    (finding,) = find([ATTENTION], own, torchs, ("mask), -1)", "mask), -2)"))
    assert "along axis −2 (`Q.shape[-2]`), not along axis −1 (`K.shape[-2]`)." in finding.said[0]


def test_an_expression_on_several_lines_is_shown_whole(find: Explain) -> None:
    scores = """einsum(
        Q,
        K, "... q d, ... k d -> ... q k",
    )"""
    (finding,) = find([ATTENTION], ('einsum(Q, K, "... q d, ... k d -> ... q k") / math.sqrt(d_k)', scores))
    assert finding.code[1:] == (
        "    scores = einsum(",
        "             ^^^^^^^",
        "        Q,",
        '        K, "... q d, ... k d -> ... q k",',
        "    )",
    )


def test_a_long_message_ends_with_a_whole_word(find: Explain) -> None:
    (finding,) = find(["linear"], ("    return in_features @ weights.T", f"    raise ValueError({'word ' * 99!r})"))
    assert finding.said[0].endswith("word word …")


@pytest.mark.parametrize(("how", "lines"), [("what", 1), ("where", 4)])
def test_an_instructor_says_how_much_is_told(find: Explain, how: str, lines: int) -> None:
    (finding,) = find([ATTENTION], NO_SCALE, how=how)
    assert len([*finding.code, *finding.said]) == lines
    assert bool(finding.file) == (how == "where")
    assert find([ATTENTION], NO_SCALE, how="tests") == []


def test_nothing_that_the_students_code_prints_is_shown(find: Explain, capfd: pytest.CaptureFixture[str]) -> None:
    find([ATTENTION], ("    d_k =", '    print("here")\n    d_k ='), NO_SCALE, most=1)
    assert 0 < capfd.readouterr().out.count("here") < 40  # the tests print, once for each call


def test_an_earlier_mistake_that_some_failing_tests_never_reach_explains_the_others(find: Explain) -> None:
    part = "mask[..., i : i + size, j : j + size])"
    unmasked = ("    queries, keys = Q.shape[-2]", "    given = mask\n    queries, keys = Q.shape[-2]")
    never_fills = (part, f"{part[:-1]} if given is not None else None)")
    fills = ("scores.masked_fill(~mask, -math.inf)", "scores.masked_fill(~mask, -9.0)")
    width = ("d_k = Q.shape[-1]", "d_k = Q.shape[-1] + 1")
    *_, later = find([ATTENTION, "blockwise_attention"], width, fills, unmasked, never_fills)
    assert later.said == ("adapters.py:22 explains 25 failing tests of Blockwise attention, too.",)


def test_an_error_of_ours_ends_a_search_and_staff_read_it(find: Explain, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr("whichline.locate.diagnose.find_unrepeatable", fail)
    with pytest.raises(IndexError):
        find([ATTENTION], RAISES, NO_SCALE)
    errors: list[str] = []
    (crash,) = find([ATTENTION], RAISES, NO_SCALE, errors=errors)
    assert "This raises in every call where `mask` is None, and in no other." in crash.said
    (error,) = errors
    ended = f"The search for what is wrong in {ATTENTION} ended early"
    assert error.startswith(f"{ended}: IndexError: out of range (test_explain.py:")
    assert describe_errors(errors) == [error, "This is not your mistake: please show it to the staff of your course."]
    assert describe_errors([]) == []


@pytest.mark.parametrize(
    ("top", "scale", "why"),
    [
        ("assert 'once' not in vars(sys)", "", "the code cannot be imported a second time: AssertionError: "),
        (
            "FACTOR = 2.0 if 'once' in vars(sys) else 1.0",
            " * FACTOR",
            r"the code does something else in test_scaled_dot_product_attention\[.*\] when it is imported a second",
        ),
    ],
    ids=["it cannot be", "it does something else"],
)
def test_code_that_differs_when_imported_again_is_not_followed(find: Explain, top: str, scale: str, why: str) -> None:
    errors: list[str] = []
    edits = ("import math\n", f"import math, sys\n{top}\nsys.once = True\n"), (" / math.sqrt(d_k)", scale)
    try:
        assert find([ATTENTION], *edits, errors=errors) == []
    finally:
        del sys.once  # type: ignore[attr-defined]
    (error,) = errors
    assert re.search(f"CannotFollowError: {why}", error)


def test_an_error_of_a_probe_is_none_of_the_students(find: Explain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichline.locate.probe.Recorder._copy", Mock(side_effect=KeyError("probe")))
    catches = "    d_k =", "    try:\n        mask = mask\n    except Exception:\n        return None\n    d_k ="
    with pytest.raises(KeyError, match="probe"):
        find([ATTENTION], catches, NO_SCALE)


def test_a_search_that_takes_long_on_a_students_machine_is_stopped_and_says_so(program: Callable[..., Suite]) -> None:
    suite = program(NO_SCALE)
    results = [suite.run(test) for test in suite.tests if test.problem == ATTENTION]
    *_, last = find(suite, results, seconds=0.0)
    assert last.said[-1] == "The search was stopped after 0 s: there may be more to find."
    (whole,) = find(suite, results)
    assert whole.said == ("Expected the scaled scores; found the scores.",)
