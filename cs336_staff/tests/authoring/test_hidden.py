"""The hidden suite: it accepts every right implementation, and each of its properties refuses a wrong one."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.case import case_names, load_case
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.rehearsal import HIDDEN, rehearse
from cs336_staff.authoring.right_styles import ALSO_CORRECT, CORRECT
from cs336_staff.hidden.release import FOLDER, load_release
from cs336_staff.sandbox.confinement import SandboxError
from cs336_staff.sandbox.worker import LimitExceeded

ROOT = find_root(Path(__file__).parent)

MODULES = [import_module(f"cs336_staff.hidden.{path.stem}") for path in sorted(FOLDER.glob("test_*.py"))]
TESTS = {name: (module, test) for module in MODULES for name, test in vars(module).items() if name.startswith("test_")}
RIGHT = CORRECT["matmul"]


@pytest.fixture(autouse=True)
def short_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence that is long enough to fill a worker's memory proves nothing here, where there is more."""
    monkeypatch.setattr(TESTS["test_blockwise_attention_in_little_memory"][0], "TIMES", (34, 213))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fails(name: str, adapters: Mapping[str, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch) -> str:
    """The first failure of the hidden test `name`, called on these adapters; "" if it passes."""
    module, test = TESTS[name]
    monkeypatch.setattr(module, "adapters", SimpleNamespace(**adapters))
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "cases"]
    cases = [[load_case(FOLDER / "fixtures", c)] for m in marks for c in case_names(FOLDER / "fixtures", m.args[0])]
    try:
        for arguments in cases or [[]]:
            test(*arguments)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("style", [*CORRECT, *ALSO_CORRECT])
def test_right_implementations_pass(style, monkeypatch):
    adapters = {**CORRECT, **ALSO_CORRECT}[style]
    failures = {name: fails(name, adapters, monkeypatch) for name in TESTS}
    assert {name: why for name, why in failures.items() if why} == {}


def changed(name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {**RIGHT, name: change(RIGHT[name])}


def masked_with_a_finite_number(right):
    def attention(Q, K, V, mask=None):
        scores = Q @ K.mT / Q.shape[-1] ** 0.5
        return torch.softmax(scores if mask is None else scores - 1e4 * ~mask, -1) @ V

    return attention


WRONG = {
    "test_softmax_of_any_shape": changed("run_softmax", lambda right: lambda x, dim: right(x, 0)),
    "test_softmax_sums_to_one": changed("run_softmax", lambda right: lambda x, dim: right(x, dim) * 1.01),
    "test_softmax_ignores_a_constant": changed(
        "run_softmax", lambda right: lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True)
    ),
    "test_softmax_gradients_of_any_shape": changed(
        "run_softmax", lambda right: lambda x, dim: right(x, dim) + x - x.detach()
    ),
    "test_softmax_has_no_side_effects": changed("run_softmax", lambda right: lambda x, dim: right(x.add_(1), dim)),
    "test_attention_of_any_shape": changed(
        "run_scaled_dot_product_attention", lambda right: lambda Q, K, V, mask: right(2 * Q, K, V, mask)
    ),
    "test_attention_averages_the_values": changed(
        "run_scaled_dot_product_attention", lambda right: lambda Q, K, V, mask: right(Q, K, V, mask) * 1.01
    ),
    "test_attention_ignores_the_order_of_keys": changed(
        "run_scaled_dot_product_attention",
        lambda right: lambda Q, K, V, mask: right(Q, K + torch.arange(K.shape[-2]).unsqueeze(-1), V, mask),
    ),
    "test_attention_ignores_masked_keys": changed("run_scaled_dot_product_attention", masked_with_a_finite_number),
    "test_attention_treats_batch_entries_alone": changed(
        "run_scaled_dot_product_attention", lambda right: lambda Q, K, V, mask: right(Q / len(Q), K, V, mask)
    ),
    "test_attention_gradients_of_any_shape": changed(
        "run_scaled_dot_product_attention", lambda right: lambda Q, K, V, mask: right(Q, K.detach() + 0 * K, V, mask)
    ),
    "test_attention_has_no_side_effects": changed(
        "run_scaled_dot_product_attention", lambda right: lambda Q, K, V, mask: right(Q, K, V.add_(1), mask)
    ),
    "test_linear_of_any_shape": changed(
        "run_linear", lambda right: lambda weights, **rest: right(weights=weights.flip(0), **rest)
    ),
    "test_rope_of_any_shape": changed("run_rope", lambda right: lambda theta, **rest: right(theta=2 * theta, **rest)),
    "test_rope_keeps_lengths": changed("run_rope", lambda right: lambda **arguments: right(**arguments) * 1.01),
    "test_multihead_self_attention_of_any_shape": changed(
        "run_multihead_self_attention", lambda right: lambda num_heads, **rest: right(num_heads=1, **rest)
    ),
    "test_multihead_self_attention_with_rope_of_any_shape": changed(
        "run_multihead_self_attention_with_rope", lambda right: lambda theta, **rest: right(theta=2 * theta, **rest)
    ),
    "test_multihead_self_attention_does_not_look_ahead": changed(
        "run_multihead_self_attention",
        lambda right: lambda in_features, **rest: right(in_features=in_features.roll(1, -2), **rest),
    ),
    "test_positions_count_from_zero": changed(
        "run_multihead_self_attention_with_rope",
        lambda right: (
            lambda in_features, token_positions=None, **rest: right(
                in_features=in_features, token_positions=torch.zeros(in_features.shape[-2]), **rest
            )
        ),
    ),
    "test_attention_module_of_any_shape": changed(
        "run_scaled_dot_product_attention_module", lambda right: lambda training, **rest: right(training=True, **rest)
    ),
    "test_multihead_attention_of_any_shape": changed(
        "run_multihead_attention", lambda right: lambda key, value, **rest: right(key=value, value=key, **rest)
    ),
    "test_blockwise_attention_of_any_shape": changed(
        "run_blockwise_attention",
        lambda right: lambda Q, K, V, mask, block_size: right(Q * (block_size or 1), K, V, mask, block_size),
    ),
    "test_blockwise_attention_in_little_memory": changed(
        "run_blockwise_attention", lambda right: lambda Q, K, V, mask, block_size: right(Q, K[:-11], V[:-11]) * 1.01
    ),
    "test_blockwise_attention_has_no_side_effects": changed(
        "run_blockwise_attention", lambda right: lambda Q, K, V, mask, block_size: right(Q.mul_(2), K, V, mask)
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_property_refuses_a_wrong_implementation(name, monkeypatch):
    assert fails(name, WRONG[name], monkeypatch)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2230536000 bytes"),
        LimitExceeded("run_blockwise_attention: 2100 MiB of memory, allowed are 2048"),
    ],
    ids=["refused", "killed"],
)
def test_a_matrix_that_is_held_is_said_in_words(error, monkeypatch):
    def out_of_memory(**inputs):
        raise error

    adapters = {**RIGHT, "run_blockwise_attention": out_of_memory}
    message = fails("test_blockwise_attention_in_little_memory", adapters, monkeypatch)
    assert message == (
        "238 queries and 2,343 keys take more memory than there is: is the matrix of all queries × keys held, or all "
        "of its blocks?"
    )


def test_a_grader_without_memory_is_not_the_submissions_fault(monkeypatch):
    def no_worker(**inputs):
        raise SandboxError("the sandbox gives no worker (Cannot allocate memory); start it again")

    with pytest.raises(SandboxError):
        fails("test_blockwise_attention_in_little_memory", {**RIGHT, "run_blockwise_attention": no_worker}, monkeypatch)


def test_every_property_is_refused_something():
    stored = {name for name in TESTS if name.startswith("test_hidden_")}
    assert WRONG.keys() == TESTS.keys() - stored


def test_the_smallest_failing_case_is_the_one_that_is_shown(monkeypatch):
    module, test = TESTS["test_softmax_of_any_shape"]
    monkeypatch.setattr(module, "adapters", SimpleNamespace(**WRONG["test_softmax_of_any_shape"]))
    with pytest.raises(AssertionError) as caught:
        test()
    assert sorted(caught.value.case.in_features.shape) == [1, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("test", "id"),
    [
        ("test_attention_of_any_shape", "attention-by-d_k"),
        ("test_attention_ignores_masked_keys", "attention-mask-added"),
        ("test_multihead_self_attention_does_not_look_ahead", "multihead-no-mask"),
        ("test_softmax_sums_to_one", "softmax-log"),
    ],
)
def test_a_drawn_failure_is_held_against_the_misconceptions(test, id):
    adapters = {**CORRECT["einsum"], **CATALOGUE[id].adapters}
    (failure,) = rehearse(ROOT, adapters, HIDDEN, "-k", test).failures.values()
    assert failure.evidence is not None
    assert id in failure.evidence.fits
    assert id in [mistake.id for mistake in failure.mistakes]


def test_an_assert_of_the_tests_own_says_nothing_of_misconceptions():
    """The second answer to the same call differs from the first: no misconception is stored for that."""
    calls = itertools.count()
    unsteady = changed("run_softmax", lambda right: lambda x, dim: right(x, dim) + 0.1 * (next(calls) > 0))
    (failure,) = rehearse(ROOT, unsteady, HIDDEN, "-k", "test_softmax_has_no_side_effects").failures.values()
    assert failure.headline == "the same call gives another answer the second time"
    assert failure.evidence is None


def test_the_students_list_of_points_names_no_hidden_test():
    shipped = (ROOT / "assignment.toml").read_text()
    hidden = [test for tests in load_release().weights.values() for test in tests]
    assert hidden
    assert not [test for test in hidden if f"{test} =" in shipped]
