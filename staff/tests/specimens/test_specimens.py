"""What a student reads of every specimen is what a person has judged."""

import linecache
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from staff.tests.specimens.specimen import SPECIMENS, VERDICTS, Specimen, choose_tests
from staff.tools.student import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.finding import Finding
from whichline.engine.result import Result
from whichline.engine.suite import Suite, load_suite
from whichline.locate.explain import explain
from whichline.locate.observed import Observed
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.release.verify import load_solved_suite, run_suite

PAGE = ROOT / "staff" / "docs" / "findings.md"
# Some of each kind, for each change; by night all of them run.
AT_EACH_CHANGE = {
    # wrong numbers, one place or two
    *("developed/linear-doubled", "developed/linear-rows-flipped", "first/attention-bert-mask-bias"),
    *("first/attention-diagonal-always-allowed", "first/attention-lowest-float-fill"),
    *("first/attention-root-precedence", "first/attention-value-index-typo", "first/attention-width-from-axis-one"),
    *("first/mha-merge-without-transpose", "first/mha-qkv-per-head-layout", "first/mha-scale-from-model-width"),
    *("first/rope-aliased-views", "first/rope-counts-from-one", "first/rope-exponent-doubled"),
    *("sixth/attention-zero-means-hidden", "third/c-cross-key-through-wq-scaled-twice"),
    *("third/d-attention-true-is-hidden-root-of-dv", "decoding/d-window-in-steps-only"),
    # dtypes, digits, gradients, arguments that change
    *("developed/linear-float64", "developed/softmax-no-shift-with-epsilon"),
    *("fifth/b-attention-half-scores-and-finite-mask", "first/attention-empty-row-nan-gradient"),
    *("first/attention-mask-flipped-in-place", "first/softmax-denominator-detached"),
    "third/d-attention-backward-unscaled-keys",
    # what is random, kept between calls, or never read
    *("developed/attention-keys-and-values-swapped-and-no-mask", "first/linear-weights-not-loaded"),
    *("sixth/rope-cached-table", "third/d-mha-angle-cache-forgets-theta"),
    "third/d-rope-fixed-theta-evens-then-odds",
    # crashes
    *("fifth/a-softmax-permutation", "first/attention-softmax-axis-two"),
    *("seventh/rope-positions-must-have-the-shape-of-x", "third/c-rope-short-table"),
    "third/d-mha-rope-needs-positions",
    # nothing proved, nothing found, nothing failed
    *("fifth/b-attention-zip-over-the-batch", "fifth/b-blockwise-scores-all-at-once"),
    *("first/mha-heads-see-own-slice", "first/mha-zero-scores-taken-for-masked"),
}
MARKS = {each: () if str(each) in AT_EACH_CHANGE else pytest.mark.nightly for each in SPECIMENS}
EACH = [pytest.param(each, marks=marks, id=str(each)) for each, marks in MARKS.items()]


@pytest.fixture(scope="module")
def public() -> Suite:
    return load_suite(ROOT, [ROOT / "tests"], load_problems(ROOT))


@pytest.mark.parametrize("specimen", EACH)
def test_a_specimen_has_the_findings_that_were_judged(specimen: Specimen, public: Suite) -> None:
    adapters = specimen.adapters()
    suite = choose_tests(public, adapters)
    results = run_suite(suite, {**RIGHT, **adapters})
    # The solution, which some call, is not looked into: in a student's process its tests pass.
    explanations = explain(suite, results, observed=Observed(suite.calls.adapters, lambda file: file == specimen.file))
    print("\n".join(line for each in explanations for line in ("", each.id, *each.lines)))  # pytest -s shows it
    assert all(each.file or "this line" not in each.question for each in explanations)
    found = findings(results, explanations)
    tutor = "".join(f"Tutor: {sentence}\n" for sentence in specimen.tutor)
    assert found == specimen.findings, (
        f"{specimen}\n{tutor}Findings that were judged: {specimen.findings}\nFindings now: {found}\n"
        "Read what is said today against the code, and give a new verdict by hand."
    )


# Only in public, or in the sandbox: the memory of all scores at once, a second theta, the gradients of the module.
NOT_IN_HIDDEN = {"fifth/b-blockwise-scores-all-at-once", "third/d-mha-angle-cache-forgets-theta"}
NOT_IN_HIDDEN |= {"third/d-module-softmax-in-place"}


@pytest.mark.nightly
def test_the_hidden_suite_fails_what_the_public_one_fails() -> None:
    both = load_solved_suite(ROOT)
    passed = set()
    for specimen in SPECIMENS:
        adapters = specimen.adapters()
        both.calls.adapters = SimpleNamespace(**{**RIGHT, **adapters})
        torch.manual_seed(0)  # some draw random numbers
        hidden = (test for test in choose_tests(both, adapters).tests if test.hidden)
        if specimen.findings != "passes" and all(both.run(test).passed for test in hidden):
            passed.add(str(specimen))
    assert passed == NOT_IN_HIDDEN


def findings(results: Sequence[Result], explanations: Sequence[Finding]) -> str:
    """Write them as a specimen has them."""
    if all(result.passed for result in results):
        return "passes"
    return ", ".join(each.id + f" at `{marked(each)}`" * bool(each.file) for each in explanations) or "none"


def marked(finding: Finding) -> str:
    """The expression under which the mark stands, on one line."""
    code = linecache.getline(str(ROOT / finding.file), finding.line).rstrip()
    return code[slice(*finding.columns)] or code.strip()


def test_each_specimen_of_each_change_exists() -> None:
    assert {str(each) for each in SPECIMENS} >= AT_EACH_CHANGE


def test_the_page_has_the_totals() -> None:
    for written in dict.fromkeys(each.written for each in SPECIMENS):
        verdicts = Counter(each.verdict for each in SPECIMENS if each.written == written)
        row = (f"`{written}.md`", verdicts.total(), *(verdicts[verdict] for verdict in VERDICTS))
        assert f"| {' | '.join(map(str, row))} |" in PAGE.read_text(encoding="utf-8")
