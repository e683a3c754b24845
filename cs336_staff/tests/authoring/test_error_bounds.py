"""What rounding explains, and what it does not."""

import pytest
import torch
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_kit.engine.compare import WrongAnswer
from cs336_staff.authoring.cases import CaseSpec
from cs336_staff.authoring.programs import RIGHT_STYLES
from cs336_staff.authoring.stored_cases import make_case
from cs336_staff.problems.blockwise_attention.cases import inputs as blockwise
from cs336_staff.problems.linear.cases import inputs as linear
from cs336_staff.problems.rope.cases import inputs as rope
from cs336_staff.problems.scaled_dot_product_attention.cases import inputs as attention
from cs336_staff.problems.softmax.cases import inputs as softmax

ATTENTION = "run_scaled_dot_product_attention"
EPS = torch.finfo(torch.float32).eps


def attention_case(*batch: int, gradients: tuple[str, ...] = (), seed: int = 0, **sizes) -> Case:
    return make_case(CaseSpec("attention", ATTENTION, attention(*batch, **sizes), gradients), seed)


@pytest.mark.parametrize("style", RIGHT_STYLES)
def test_a_gradient_that_is_0_because_it_cancels_may_be_off_by_what_cancels(style):
    """One key: the weight is 1 whatever the query is. Whoever divides by the sum at the end subtracts two numbers."""
    for seed in range(20):
        case = attention_case(2, queries=3, keys=1, d_k=2, d_v=3, gradients=("Q", "K", "V"), seed=seed)
        assert not case.expected["gradient of Q"].any()
        assert 0 < case.bound["gradient of Q"].min() < case.bound["gradient of Q"].max() < 1e-4
        case.require_gradients()
        case.check_gradients(RIGHT_STYLES[style][ATTENTION](**case.inputs))


def test_a_gradient_that_is_0_may_not_be_off_by_more():
    case = attention_case(2, queries=3, keys=1, d_k=2, d_v=3, gradients=("Q",))
    case.require_gradients()
    answer = RIGHT_STYLES["matmul"][ATTENTION](**case.inputs) + 1e-4 * (case.Q - case.Q.detach()).sum()
    with pytest.raises(WrongAnswer, match="gradient of Q is wrong"):
        case.check_gradients(answer)


def test_a_sum_of_n_products_is_off_by_n_roundings_of_their_magnitudes():
    case = make_case(CaseSpec("linear", "run_linear", linear(3, d_in=5, d_out=2)), 0)
    magnitudes = case.in_features.double().abs() @ case.weights.double().abs().T
    torch.testing.assert_close(case.bound["answer"], 6 * EPS / 2 * magnitudes)


def test_where_nothing_is_attended_to_zeros_are_exact():
    case = attention_case(2, mask="empty rows")
    nothing = ~case.mask.any(-1)
    assert case.bound["answer"][:, nothing].max() < 1e-30
    assert case.bound["answer"][:, ~nothing].min() > EPS / 100


def test_a_hidden_key_and_its_value_count_for_nothing():
    def with_a_hidden_key(generator):
        inputs = attention(2, mask="random")(generator)
        inputs["mask"][:, 3] = False
        inputs["mask"][:, 0] = True
        return inputs

    def huge(generator):
        inputs = with_a_hidden_key(generator)
        inputs["K"][:, 3], inputs["V"][:, 3] = 1e6, 1e30
        return inputs

    small, large = (make_case(CaseSpec("attention", ATTENTION, draw), 0) for draw in (with_a_hidden_key, huge))
    torch.testing.assert_close(small.bound["answer"], large.bound["answer"])


def test_half_precision_is_computed_in_float32_and_rounded_once():
    case = attention_case(2, mask="random", dtype=torch.float16)
    case.check_to_the_last_digit(RIGHT_STYLES["einsum"][ATTENTION](**case.inputs))
    scores = (case.Q @ case.K.mT / case.Q.shape[-1] ** 0.5).masked_fill(~case.mask, -torch.inf)
    with pytest.raises(WrongAnswer, match="the error that is allowed"):
        case.check_to_the_last_digit(torch.softmax(scores, -1) @ case.V)


def test_an_angle_in_float32_is_off_by_more_the_further_away_the_position_is():
    case = make_case(CaseSpec("rope", "run_rope", rope(positions="spaced", sequence=9, d_k=2)), 0)
    relative = case.bound["answer"].norm(dim=-1) / case.in_query_or_key.norm(dim=-1)
    roundings = relative / (EPS / 2 * case.token_positions)
    assert ((roundings > 4) & (roundings < 7)).all()  # 3 of the angle, and the rest of every product


def test_scores_that_are_far_from_0_are_off_by_as_much_more():
    near, far = attention_case(2, scale=1.0), attention_case(2, scale=100.0)
    assert 10 < far.bound["answer"].mean() / near.bound["answer"].mean() < 200


def test_every_block_adds_a_little():
    def bound(block_size: int) -> Tensor:
        spec = CaseSpec("blockwise", "run_blockwise_attention", blockwise(2, block_size=block_size))
        return make_case(spec, 0).bound["answer"]

    assert ((bound(1) > bound(7)) & (bound(1) < 7 * bound(7))).all()


def test_float64_is_compared_with_answers_that_are_rounded_too():
    case = make_case(CaseSpec("softmax", "run_softmax", softmax(1, 1, dim=0, dtype=torch.float64)), 0)
    assert case.bound["answer"].item() > 2 * torch.finfo(torch.float64).eps
