"""How many of the failing tests each finding explains, which findings are told, and which mistake is an earlier one."""

from types import SimpleNamespace

import pytest
import torch

from cs336_kit.engine.assignment import load_problems
from cs336_kit.engine.room import Room
from cs336_kit.engine.suite import load_suite
from cs336_kit.examination import explain as explaining
from cs336_kit.examination.earlier import build_on_right, right_programs
from cs336_kit.examination.experiment import Finding
from cs336_kit.examination.explain import explain
from cs336_staff.authoring.programs import CATALOGUE, RIGHT, build_submission, wrong_submission
from cs336_staff.grading.finding import Finding as ClassFinding
from cs336_staff.tools.student import ROOT

SOFTMAX, ATTENTION = "run_softmax", "scaled_dot_product_attention"
PLAIN, WITH_ROPE = "run_multihead_self_attention", "run_multihead_self_attention_with_rope"
BLOCKWISE = "run_blockwise_attention"
IN_PLACE = wrong_submission("softmax-in-place")[SOFTMAX]


# Fails four tests of softmax, of which in-place fails two and three others, and ones all.
def less_minimum(in_features, dim):
    powers = (in_features - in_features.amin(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


@pytest.fixture(scope="module")
def public():
    return load_suite(ROOT, [ROOT / "tests"], load_problems(ROOT))


@pytest.fixture
def tell(public, monkeypatch):
    """Say what the student reads, if the examinations of a problem find this in each adapter."""

    def told(problem, adapters, findings, right=(), most=3, tests=""):
        room = Room({name: lambda run, found=found: found for name, found in findings.items()}, right=dict(right))
        monkeypatch.setattr(explaining, "load_room", lambda _: room)
        monkeypatch.setattr("cs336_kit.examination.earlier.load_room", lambda _: room)
        public.calls.adapters = SimpleNamespace(**{**RIGHT, **adapters})
        run = [test for test in public.tests if test.problem == problem and test.name.startswith(tests)]
        return explain(public, [public.run(test) for test in run], most)

    return told


def finding(id, program=None, **parts):
    return Finding(id, f"{id} was measured.", "", "Why?", section="1", program=program, **parts)


def ids(explanations):
    return [each.id for each in explanations]


def after_read(explanation):
    """The lines about tests."""
    read = next(i for i, line in enumerate(explanation.lines) if line.startswith("  Read:"))
    return list(explanation.lines[read + 1 :])


def test_the_only_cause_explains_all_tests(tell):
    findings = {SOFTMAX: [finding("nothing", RIGHT[SOFTMAX]), finding("minimum", less_minimum)]}
    [told] = tell("softmax", {SOFTMAX: less_minimum}, findings)
    assert told.id == "minimum"
    assert after_read(told) == [
        "This explains all 4 tests that fail.",
        "Correct this, and all of them pass.",
    ]


def test_part_of_the_cause_promises_nothing(tell):
    [told] = tell("softmax", {SOFTMAX: less_minimum}, {SOFTMAX: [finding("in-place", IN_PLACE)]})
    assert after_read(told) == ["This explains 2 of the 4 tests that fail."]


def test_causes_are_told_by_the_points_that_they_explain_and_promise_together(tell):
    def raises(in_features, dim):
        raise ValueError

    findings = [
        finding("gradient", touches=lambda case: bool(case.gradients)),
        finding("small", IN_PLACE),
        finding("large", less_minimum),
        finding("crash", error=ValueError("no")),
    ]
    told = tell("softmax", {SOFTMAX: raises}, {SOFTMAX: findings}, most=4)
    assert ids(told) == ["crash", "small", "large", "gradient"]  # the gradients of in-place are three tests
    assert "Correct" not in str(told)
    told = tell("softmax", {SOFTMAX: less_minimum}, {SOFTMAX: findings[:3]})
    assert ids(told) == ["large", "small"]  # the tests of gradients pass
    assert [after_read(each)[1:] for each in told] == [[], ["Correct these, and all of them pass."]]


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("test_softmax[large", ["This explains the test that fails.", "Correct this, and it passes."]),
        ("test_softmax[", ["This explains both tests that fail.", "Correct this, and both of them pass."]),
    ],
)
def test_what_was_not_run_is_not_counted(tell, tests, said):
    [told] = tell("softmax", {SOFTMAX: less_minimum}, {SOFTMAX: [finding("minimum", less_minimum)]}, tests=tests)
    assert after_read(told) == said


def test_all_tests_of_one_of_two_functions(tell):
    wrong = wrong_submission("multihead-mask-missing")
    [told] = tell("multihead_self_attention", wrong, {PLAIN: [finding("mask", wrong[PLAIN])]})
    assert after_read(told) == [f"This explains all 8 tests of {PLAIN} that fail."]


def test_a_test_that_right_programs_fail_does_not_count_against_a_cause(tell):
    wrong = {BLOCKWISE: lambda **inputs: RIGHT[BLOCKWISE](**inputs) * 2}
    [told] = tell(
        "blockwise_attention", wrong, {BLOCKWISE: [finding("twice", wrong[BLOCKWISE])]}, tests="test_blockwise"
    )
    assert after_read(told)[-1] == (
        "Correct this, and all of them pass, but perhaps not test_blockwise_attention_holds_no_matrix."
    )


def test_the_same_finding_in_two_functions_is_one(tell):
    wrong = wrong_submission("multihead-mask-missing")
    same = "It fails."
    crash = [Finding(f"{id}-fails", same, "", "Why?", error=ValueError("no"), section="6") for id in ("one", "other")]
    findings = {
        PLAIN: [crash[0], finding("mask", wrong[PLAIN])],
        WITH_ROPE: [crash[1], finding("mask", wrong[WITH_ROPE])],
    }
    first, mask = tell("multihead_self_attention", wrong, findings)
    assert first.lines[0] == f"{same} This is so in both {PLAIN} and {WITH_ROPE}."
    assert after_read(first) == []
    assert after_read(mask) == [
        "This mistake alone would make all 20 tests fail.",
        "Correct these, and all of them pass.",
    ]


def test_two_causes_of_the_same_failures_do_not_contradict_each_other(tell):
    findings = [finding("minimum", less_minimum), finding("in-place", IN_PLACE)]
    large, small = tell("softmax", {SOFTMAX: less_minimum}, {SOFTMAX: findings})
    assert after_read(large) == ["This mistake alone would make all 4 tests fail."]
    assert after_read(small) == [
        "This mistake alone would make 2 of the 4 tests fail.",
        "Correct these, and all of them pass.",
    ]


NOTHING_ELSE = "; nothing else is wrong with it."


def without_later_positions(Q, K, V, mask=None):
    """Attention that sets scores above the diagonal to 0, whatever the mask says."""
    scores = Q @ K.mT / Q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores.tril(), -1) @ V


def transposed(x, W):
    return x @ (W if W.shape[0] == W.shape[1] else W.mT)


def run_tests(public, adapters, problems=()):
    public.calls.adapters = SimpleNamespace(**adapters)
    return [public.run(test) for test in public.tests if test.problem in (problems or public.problems)]


def by_problem(public, adapters, only=()):
    return {each.problem: each.lines for each in explain(public, run_tests(public, adapters, only))}


@pytest.fixture(scope="module")
def on_wrong_attention():
    """A submission that is right but for its attention."""
    return build_submission({ATTENTION: lambda earlier: without_later_positions})


def test_what_is_right_on_a_wrong_attention_is_not_examined(public, on_wrong_attention):
    told = by_problem(public, on_wrong_attention)
    problem = "multihead_self_attention"  # alone, with earlier problems that were not run
    assert by_problem(public, on_wrong_attention, [problem]) == {problem: told[problem]}
    assert told["multihead_self_attention"] == (
        f"Causal multi-head self-attention does what your scaled dot-product attention does{NOTHING_ELSE}",
    )
    assert told["attention_module"] == (  # nobody can say which weights are dropped in training
        "Attention as a module does what your scaled dot-product attention does: correct that first.",
    )
    assert told["multihead_attention"] == (
        f"Attention between two sequences does what your attention as a module does{NOTHING_ELSE}",
    )


def test_all_earlier_problems_that_matter_are_named(public):
    wrong = {ATTENTION: lambda earlier: without_later_positions, "linear": lambda earlier: transposed}
    problems = [ATTENTION, "linear", "multihead_self_attention"]
    assert by_problem(public, build_submission(wrong), problems)["multihead_self_attention"] == (
        f"Causal multi-head self-attention does what your scaled dot-product attention and your linear layer do"
        f"{NOTHING_ELSE}",
    )


@pytest.mark.parametrize("change", [lambda answer: 2 * answer, lambda answer: answer.detach()])
def test_another_mistake_on_a_wrong_attention_is_examined(public, on_wrong_attention, change):
    changed = {**on_wrong_attention, PLAIN: lambda **inputs: change(on_wrong_attention[PLAIN](**inputs))}
    told = by_problem(public, changed, [ATTENTION, "multihead_self_attention"])
    assert NOTHING_ELSE not in str(told["multihead_self_attention"])


def test_answers_without_numbers_are_explained(public):
    """All answers are alike that have no numbers."""

    def without_numbers(run):
        def answer(*arguments, **named):
            came = run(*arguments, **named)
            return came[..., :0] if isinstance(came, torch.Tensor) else came

        return answer

    results = run_tests(public, {name: without_numbers(run) for name, run in RIGHT.items()})
    assert {each.problem for each in explain(public, results)} >= {each.problem for each in results if not each.bonus}


def test_one_wrong_problem_is_examined_although_an_earlier_one_is_wrong(public):
    adapters = {**wrong_submission("multihead-mask-missing"), ATTENTION: without_later_positions}
    told = by_problem(public, adapters, [ATTENTION, "multihead_self_attention"])
    assert "does what your" not in str(told["multihead_self_attention"])


def test_a_page_for_the_class_counts_what_was_found_and_not_the_tests(tell):
    [told] = tell("softmax", {SOFTMAX: less_minimum}, {SOFTMAX: [finding("minimum", less_minimum)]})
    parts = ClassFinding.of(told)
    assert (parts.short, parts.question) == ("minimum was measured.", "Why?")
    assert parts.tests == tuple(after_read(told))


@pytest.mark.parametrize("id", ["attention-mask-causal-too", "multihead-over-heads"])
def test_the_first_failure_alone_says_what_the_whole_run_says(public, id):
    results = run_tests(public, wrong_submission(id), [CATALOGUE[id].problem])
    first = next(result for result in results if not result.passed)
    assert ids(explain(public, [first])) == ids(explain(public, results)) == [id]


def test_what_is_not_written_is_not_examined(public):
    def not_written(**inputs):
        raise NotImplementedError

    def written_for_no_positions(**inputs):
        if inputs["token_positions"] is None:
            return wrong_submission("multihead-mask-missing")[WITH_ROPE](**inputs)
        raise NotImplementedError

    for with_rope in (not_written, written_for_no_positions):
        results = run_tests(
            public, {**wrong_submission("multihead-mask-peeks"), WITH_ROPE: with_rope}, ["multihead_self_attention"]
        )
        explanations = explain(
            public, [each for each in results if each.test.startswith("test_multihead_self_attention[")]
        )
        assert explanations
        assert "NotImplementedError" not in str(explanations)


@pytest.mark.parametrize("programs", [right_programs, build_on_right])
@pytest.mark.parametrize("problem", load_problems(ROOT))
def test_programs_that_are_said_to_be_right_pass_the_tests(public, problem, programs):
    right = programs(public.problems, problem) or right_programs(public.problems, problem)
    tests = [test for test in public.tests if test.problem == problem and not test.memory]
    dropout = ("test_attention_module_dropout", "test_attention_module_follows_the_seed")  # they draw nothing
    assert right
    assert all(public.fails_on(right, test) is (test.function in dropout) for test in tests)
