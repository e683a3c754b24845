"""What is said of a problem when only some of its tests were run."""

from types import SimpleNamespace

import pytest

from cs336_kit.engine.assignment import load_problems
from cs336_kit.engine.suite import load_suite
from cs336_kit.examination.explain import explain
from cs336_staff.authoring.programs import wrong_submission
from cs336_staff.tools.student import ROOT


def suite_of(id, **others):
    return load_suite(
        ROOT, [ROOT / "tests"], load_problems(ROOT), SimpleNamespace(**{**wrong_submission(id), **others})
    )


@pytest.mark.parametrize(
    ("id", "found"),
    [
        ("attention-mask-causal-too", ["attention-mask-causal-too"]),
        ("multihead-over-heads", ["multihead-over-heads"]),
    ],
)
def test_the_first_failure_alone_says_what_the_whole_run_says(id, found):
    suite = suite_of(id)
    problem = "scaled_dot_product_attention" if id.startswith("attention") else "multihead_self_attention"
    results = [suite.run(test) for test in suite.tests if test.problem == problem]
    first = next(result for result in results if not result.passed)
    assert [each.id for each in explain(suite, [first])] == found
    assert [each.id for each in explain(suite, results)] == found


def test_what_is_not_written_is_not_examined():
    def not_written(**inputs):
        raise NotImplementedError

    def written_for_no_positions(**inputs):
        if inputs["token_positions"] is None:
            return wrong_submission("multihead-mask-missing")["run_multihead_self_attention_with_rope"](**inputs)
        raise NotImplementedError

    for with_rope in (not_written, written_for_no_positions):
        suite = suite_of("multihead-mask-peeks", run_multihead_self_attention_with_rope=with_rope)
        results = [suite.run(test) for test in suite.tests if test.function == "test_multihead_self_attention"]
        explanations = explain(suite, results)
        assert explanations
        assert "NotImplementedError" not in str(explanations)
