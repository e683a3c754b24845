"""What the examination of decoding finds."""

from functools import partial

import pytest
import torch

from cs336_kit.engine.case import load_case
from cs336_kit.engine.compare import WrongAnswer
from cs336_kit.problems.decoding import decoding_on, examine_decoding
from cs336_staff.authoring.programs import CATALOGUE, RIGHT, build_submission, wrong_submission
from cs336_staff.tools.student import ROOT

ADAPTER = "run_decoding"
decoding = build_submission()[ADAPTER]


def found(run) -> list[str]:
    return [finding.id for finding in examine_decoding(run)]


@pytest.mark.parametrize(
    "ids",
    [
        ("positions-restart", "mask-top-left"),
        ("cache-turned-again", "window-ignored"),
        ("cache-cut", "output-transposed"),
    ],
    ids=" ".join,
)
def test_two_mistakes(ids):
    parts = {step: way for id in ids for step, way in CATALOGUE[f"decoding-{id}"].parts.items()}
    assert sorted(found(partial(decoding, **parts))) == sorted(f"decoding-{id}" for id in ids)


def test_the_heads_of_the_queries_in_the_cache():
    def run(num_heads, num_kv_heads, keys=None, values=None, **rest):
        group = num_heads // num_kv_heads
        if keys is not None and values is not None and keys.shape[-3] == num_heads:
            keys, values = keys[..., ::group, :, :], values[..., ::group, :, :]
        answer, *kept = decoding(num_heads=num_heads, num_kv_heads=num_kv_heads, keys=keys, values=values, **rest)
        return answer, *(x.repeat_interleave(group, -3) for x in kept)

    (finding,) = examine_decoding(run)
    assert finding.id == "decoding-shape-keys-behind"
    assert finding.measured == (
        "Your answer has the right shape for 2 tokens behind a cache of 3; for the keys that you return behind a cache "
        "of 3 the answer has shape (6, 5, 4), expected (2, 5, 4)."
    )


def test_a_cache_that_is_written_in_place():
    def run(keys=None, values=None, **rest):
        answer = decoding(keys=keys, values=values, **rest)
        if keys is not None:
            keys.mul_(2)
        return answer

    assert found(run) == ["decoding-in-place"]


@pytest.mark.parametrize(
    ("answer", "returns"),
    [
        (lambda **inputs: inputs["in_features"], "Tensor"),
        (lambda **inputs: None, "NoneType"),
        (lambda **inputs: (inputs["in_features"], None), "Tensor and NoneType"),
    ],
)
def test_an_answer_without_a_cache(answer, returns):
    (finding,) = examine_decoding(answer)
    assert finding.id == "decoding-no-cache"
    assert finding.measured.startswith(f"Your adapter returns {returns}; it should return three tensors: the answer")


def test_what_no_mistake_explains_is_measured():
    """The last of several new tokens sees two more keys than it should."""

    def run(window, in_features, **rest):
        answer, *kept = decoding(window=window, in_features=in_features, **rest)
        wide = decoding(window=window and window + 2, in_features=in_features, **rest)
        return torch.cat((answer[..., :-1, :], wide[0][..., -1:, :]), -2), *kept

    (finding,) = examine_decoding(run)
    assert finding.id == "decoding-window"
    assert finding.measured == (
        "With a window of 2, the answer to token 4 changes with tokens 1, 2, 3 and 4; it should change with tokens "
        "3 and 4."
    )


def test_calls_that_do_not_fit_each_other():
    def run(keys=None, values=None, **rest):
        return decoding(keys=keys if keys is None else keys.flip(-2).cos(), values=values, **rest)

    assert "decoding-calls-differ" in found(run)


def test_it_is_right_on_a_wrong_earlier_problem():
    wrong = wrong_submission("attention-scale-by-d_k")
    case = load_case(ROOT / "fixtures", "decoding/several-tokens-window").copy()
    answer, *_ = decoding_on(wrong)(**case.inputs)
    of_solution, *_ = build_submission()[ADAPTER](**case.inputs)
    assert not torch.allclose(answer, of_solution)
    case.check(decoding_on(RIGHT)(**case.inputs))


def test_three_outputs_are_named():
    case = load_case(ROOT / "fixtures", "decoding/one-token")
    with pytest.raises(WrongAnswer) as raised:
        case.check(None)
    assert (
        str(raised.value) == "the answer is None, expected a tuple: the answer, the cached keys and the cached values"
    )
