"""What a student reads when an answer is wrong, and when no name may be given."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.failure import Failure, naming
from cs336_kit.examination.relations import relations, weights
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.rehearsal import Rehearsal, rehearse
from cs336_staff.authoring.right_styles import CORRECT

ROOT = find_root(Path(__file__).parent)
ATTENTION = "run_scaled_dot_product_attention"


def run(adapters, *options: str) -> Rehearsal:
    return rehearse(ROOT, {**CORRECT["einsum"], **adapters}, Path("tests"), *options)


def failure_of(rehearsal: Rehearsal, test: str) -> Failure:
    (failure,) = (failure for name, failure in rehearsal.failures.items() if name.endswith(test))
    return failure


def test_the_report_gives_numbers_then_the_mistake_then_the_question_then_the_section():
    rehearsal = run(CATALOGUE["attention-by-d_k"].adapters)
    lines = str(failure_of(rehearsal, "test_scaled_dot_product_attention[3d-causal]")).splitlines()
    assert lines[:9] == [
        "the answer is wrong in 156 of 182 places",
        "  largest error 0.47 at [0, 3, 7]: got 0.0147757, expected -0.457394",
        "  that is 236,085 times the tolerance of 2e-06",
        "  only at 1, 2, 3, 4, 5, 6 along axis 1, the others of its 7 are right",
        "",
        "  You divided the scores by d_k, not by √d_k (or by √d_k twice).",
        "    Think: Which length is it that makes the scores large: what is the",
        "      variance of the dot product of two random vectors?",
        "    Read:  docs/assignment.md, section 3 Attention",
    ]
    assert max(map(len, lines)) <= 80


def odd_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """Nothing that is in the catalogue: a temperature, and a fill of -7."""
    scores = 1.3 * Q @ K.mT / Q.shape[-1] ** 0.5
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -7.0), -1) @ V


def test_an_unknown_mistake_shows_the_smallest_row_and_never_the_right_answer():
    rehearsal = run({ATTENTION: odd_attention})
    assert rehearsal.explained["attention"] == []
    text = str(failure_of(rehearsal, "test_scaled_dot_product_attention[3d-causal]"))
    shown = text.partition("No known mistake gives this answer.")[2].splitlines()
    assert shown[1:5] == [
        "  the smallest wrong row is query [0, 0], which may attend to keys [0]",
        "  your weights there: [0.979, 0.003, 0.003, 0.003, 0.003, 0.003, 0.003]",
        "  they sum to 1, as expected",
        "  keys that are forbidden have 0.0208 of that, and should have 0",
    ]


def test_two_mistakes_at_once_are_not_called_by_one_name():
    no_scale = CATALOGUE["attention-no-scale"].adapters[ATTENTION]
    rehearsal = run({ATTENTION: lambda Q, K, V, mask=None: no_scale(Q, K, V, None)})
    assert rehearsal.explained == {"attention": []}
    text = str(failure_of(rehearsal, "test_scaled_dot_product_attention[3d-no-mask]"))
    assert "More than one thing is wrong in this problem; this test looks like this:" in text
    assert "You did not divide the scores by √d_k." in text
    assert "You did not divide" not in str(failure_of(rehearsal, "test_scaled_dot_product_attention[3d-causal]"))


def test_where_two_mistakes_still_fit_both_are_given():
    rehearsal = run(CATALOGUE["multihead-no-mask"].adapters, "-k", "multihead")
    assert rehearsal.explained == {
        "multihead": ["attention-mask-ignored", "attention-mask-on-values", "multihead-no-mask"]
    }
    text = str(failure_of(rehearsal, "test_multihead_self_attention[square]"))
    assert "  You did not use the mask." in text
    assert "  Or: You did not use a causal mask." in text


def test_the_whole_run_tells_apart_what_one_problem_cannot():
    assert run(CATALOGUE["multihead-no-mask"].adapters).explained == {"multihead": ["multihead-no-mask"]}
    assert run(CATALOGUE["attention-mask-ignored"].adapters).explained["multihead"] == ["attention-mask-ignored"]


def test_a_mistake_of_attention_is_named_inside_a_multi_head_attention_that_does_not_call_it():
    adapters = CATALOGUE["attention-no-scale"].adapters
    rehearsal = run({name: adapter for name, adapter in adapters.items() if name != ATTENTION})
    assert rehearsal.explained == {"multihead": ["attention-no-scale"]}


def test_nan_where_nothing_may_be_attended_to_does_not_hide_another_mistake():
    def wrong(Q, K, V, mask=None):
        scores = Q @ K.mT
        return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), -1) @ V

    assert run({ATTENTION: wrong}).explained == {"attention": ["attention-no-scale"]}


def test_errors_everywhere_name_no_mistake():
    def broken(*arguments, **keywords):
        raise ValueError("not today")

    rehearsal = run({ATTENTION: broken})
    assert rehearsal.explained == {"attention": []}
    failure = failure_of(rehearsal, "test_scaled_dot_product_attention[3d-causal]")
    assert failure.headline == "ValueError: not today"
    assert failure.mistakes == []


def test_work_that_is_not_written_yet_is_no_mistake():
    def unwritten(**arguments):
        raise NotImplementedError

    rehearsal = run({"run_linear": unwritten})
    assert rehearsal.explained == {}
    assert all(failure.headline.startswith("not implemented yet") for failure in rehearsal.failures.values())


def test_one_small_test_names_no_mistake_when_many_fit():
    rehearsal = run({ATTENTION: CATALOGUE["attention-mask-after-softmax"].adapters[ATTENTION]}, "-k", "one-token")
    assert rehearsal.failures == {}
    rehearsal = run(CATALOGUE["rope-skipped"].adapters, "-k", "test_rope and one-token")
    assert len(rehearsal.explained["rope"]) == 2


def test_an_error_of_one_in_a_hundred_is_not_half_precision():
    def wider(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        return CORRECT["einsum"][ATTENTION](Q * (Q.shape[-1] / (Q.shape[-1] + 1)) ** 0.5, K, V, mask)

    (failure,) = run({ATTENTION: wider}, "-k", "test_scaled_dot_product_attention and 3d-causal").failures.values()
    assert failure.mistakes == []


def test_verdict_lines_carry_the_names(tmp_path):
    run(CATALOGUE["linear-transposed"].adapters, "-k", "test_linear", f"--verdicts={tmp_path / 'verdicts'}")
    lines = [json.loads(line) for line in (tmp_path / "verdicts").read_text().splitlines()]
    named = {line["named"].rpartition("::")[2]: line for line in lines if "named" in line}
    assert named["test_linear[square]"]["mistakes"] == ["linear-transposed"]
    assert named["test_linear[square]"]["lines"][0] == "You multiplied by the weight the wrong way round."


def test_the_naming_says_nothing_about_the_case():
    """The hidden suite shows these lines and nothing else."""
    rehearsal = run(CATALOGUE["softmax-log"].adapters, "-k", "test_softmax")
    named = {
        tuple(naming(failure.mistakes, failure.alone)) for failure in rehearsal.failures.values() if failure.mistakes
    }
    assert len(named) == 1


RIGHT = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[True, True], [True, False], [False, False]])


def related(answer: Tensor, expected: Tensor = RIGHT, **inputs) -> dict[str, str]:
    return relations(answer, expected, torch.float64, 1e-9, inputs)


@pytest.mark.parametrize(
    ("answer", "relation", "sentence"),
    [
        (2.5 * RIGHT, "factor", "Your answer is 2.5 times the right one, everywhere."),
        (RIGHT.permute(0, 2, 1), "permuted", "The numbers are right, but the axes stand in the order (0, 2, 1)."),
        (RIGHT.reshape(6, 5), "reshaped", "The numbers are right and in the right order; only the shape is not."),
        (
            RIGHT[:1].expand(2, 3, 5),
            "repeated",
            "What index 0 along axis 0 should get is repeated for all 2.",
        ),
        (RIGHT.float(), "dtype", "The numbers are right; only the dtype is not."),
        (
            RIGHT.where(RIGHT < 1, torch.nan),
            "right but for NaN",
            "Everything that is not NaN or infinite is right.",
        ),
        (RIGHT + torch.arange(5), "same offset in every row", "Every row of your answer is off by the same vector."),
    ],
)
def test_simple_relations_are_seen(answer, relation, sentence):
    assert related(answer)[relation] == sentence


def test_relations_to_the_mask_are_seen():
    masked = RIGHT.clone()
    masked[:, 1:] += 1
    assert "right but where masked" in related(masked, Q=RIGHT, mask=MASK)
    nothing = RIGHT.clone()
    nothing[:, 2] += 1
    assert "right but for nothing" in related(nothing, Q=RIGHT, mask=MASK)
    assert not {"right but where masked", "right but for nothing"} & related(RIGHT + 1, Q=RIGHT, mask=MASK).keys()


def test_an_unrelated_answer_has_no_relation():
    assert related(torch.flip(RIGHT, (0, 1, 2)) ** 2) == {}


def test_weights_are_read_off_an_answer():
    V = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    right = torch.tensor([[0.25, 0.25, 0.5], [1.0, 0.0, 0.0]], dtype=torch.float64)
    found = weights(right @ V, V)
    assert found is not None
    torch.testing.assert_close(found, right)
    assert weights(right @ V + torch.randn(2, 5, dtype=torch.float64), V) is None
    assert weights(torch.zeros(2, 2), torch.zeros(3, 2)) is None, "three values in two dimensions: many sums"


@pytest.mark.parametrize("factor", [0.0, 2.0, torch.nan])
def test_an_answer_that_is_all_wrong_gets_no_name(factor):
    right = CORRECT["einsum"][ATTENTION]
    rehearsal = run({ATTENTION: lambda Q, K, V, mask=None: factor * right(Q, K, V, mask)})
    assert rehearsal.named == set()
    assert {mistake.id for failure in rehearsal.failures.values() for mistake in failure.mistakes} == set()
    assert not [failure for failure in rehearsal.failures.values() if "Some weights are 0" in str(failure)]


def test_one_row_is_not_said_to_be_off_like_every_other():
    rehearsal = run({"run_softmax": lambda in_features, dim: in_features})
    text = str(failure_of(rehearsal, "test_softmax[1d]"))
    assert "off by the same vector" not in text
    assert "and should to 1" in text
