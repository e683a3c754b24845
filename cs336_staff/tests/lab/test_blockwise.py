"""The lab's blockwise attention gives what scaled_dot_product_attention gives, and skips what a mask hides."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, current_thread, main_thread
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cs336_basics.nn.functional import scaled_dot_product_attention
from cs336_kit.lab.blockwise.attention import blockwise_attention
from cs336_kit.lab.blockwise.masks import Mask, as_mask, causal, document, padding, window
from cs336_kit.lab.blockwise.threads import share_out
from cs336_staff.tests.blockwise import assert_as_einsum, drawn_mask, sizes_and_inputs


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


# The batch-like dimensions of queries, keys, values and mask (None: no mask).
BATCHES = [
    ((), (), (), None),
    ((), (), (), ()),
    ((2, 3), (2, 3), (2, 3), None),
    ((2, 3), (2, 3), (2, 3), (2, 1)),
    ((2, 3), (2, 3), (2, 3), (3,)),
    ((2, 3), (2, 3), (2, 3), (2, 3)),
    ((2, 2, 3), (2, 2, 1), (2, 2, 1), None),  # grouped queries
    ((2, 2, 3), (2, 2, 1), (2, 2, 1), (2, 1, 1)),
    ((2, 3), (2, 1), (2, 1), (3,)),  # a mask for each head, keys shared by the heads
    ((2, 3), (3,), (1, 3), None),  # keys shared by the batch
    ((3,), (1,), (3,), ()),
    ((1,), (2, 3), (3,), (2, 1)),
    ((), (), (), (2, 3)),
]


@pytest.mark.parametrize("batches", BATCHES, ids=str)
@sizes_and_inputs
def test_results_and_gradients_are_those_of_einsum_attention(batches: tuple, **drawn: Any) -> None:
    assert_as_einsum(blockwise_attention, batches, **drawn)


@pytest.mark.parametrize("magnitude", [1.0, 50.0])
def test_gradcheck(magnitude: float) -> None:
    Q, K, V = (normal(2, 5, 3, seed=i, dtype=torch.float64).requires_grad_() for i in range(3))
    mask = drawn_mask(5, 5)
    mask[2] = False
    assert torch.autograd.gradcheck(
        lambda Q, K, V: blockwise_attention(Q * magnitude, K, V, mask, block_size=2), (Q, K, V), atol=1e-4
    )


LENGTH = 50
IDS = torch.tensor([0] * 20 + [1] * 3 + [2] * 27)
LENGTHS = torch.tensor([50, 13, 0])
SAME_DOCUMENT, BAND = IDS[:, None] == IDS, torch.ones(LENGTH, LENGTH).tril(2).triu(-2).bool()
MASKS = {
    "causal": (causal, torch.ones(LENGTH, LENGTH).tril().bool()),
    "causal & window": (causal & window(7), torch.ones(LENGTH, LENGTH).tril().triu(-6).bool()),
    "padding": (padding(LENGTHS[:, None]), torch.arange(LENGTH) < LENGTHS.view(3, 1, 1, 1)),
    "document": (document(IDS), SAME_DOCUMENT),
    "document | window": (document(IDS) | window(3), SAME_DOCUMENT | BAND),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("block_size", [None, 8])
def test_mask_objects(name: str, block_size: int | None) -> None:
    mask, matrix = MASKS[name]
    Q, K, V = (normal(3, 2, LENGTH, 4, seed=i).requires_grad_() for i in range(3))
    actual = blockwise_attention(Q, K, V, mask, block_size=block_size)
    expected = scaled_dot_product_attention(Q, K, V, matrix)
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(output.square().sum(), (Q, K, V)) for output in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_causal_with_fewer_queries_than_keys_counts_both_from_0() -> None:
    Q, K, V = normal(3, 4), normal(5, 4, seed=1), normal(5, 4, seed=2)
    expected = scaled_dot_product_attention(Q, K, V, torch.ones(3, 5).tril().bool())
    torch.testing.assert_close(blockwise_attention(Q, K, V, causal, block_size=2), expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    Q, K, V = (normal(2, 600, 8, seed=i).to(dtype).requires_grad_() for i in range(3))
    actual = blockwise_attention(Q, K, V, causal)
    exact = scaled_dot_product_attention(Q.double(), K.double(), V.double(), torch.ones(600, 600).tril().bool())
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.double(), exact, rtol=tolerance, atol=tolerance)
    of_actual, of_exact = (torch.autograd.grad(out.sum(), (Q, K, V)) for out in (actual, exact))
    for ours, theirs in zip(of_actual, of_exact, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("magnitude", [1.0, 20.0])
def test_float32_errs_no_more_than_the_fused_kernel_does(masked: bool, magnitude: float) -> None:
    Q, K, V = (normal(4, 1024, 64, seed=i) for i in range(3))
    Q = Q * magnitude
    mask = torch.ones(1024, 1024).tril().bool() if masked else None
    exact = scaled_dot_product_attention(Q.double(), K.double(), V.double(), mask)
    error = blockwise_attention(Q, K, V, mask) - exact
    of_fused = torch.nn.functional.scaled_dot_product_attention(Q, K, V, mask) - exact
    assert error.square().mean() <= 1.02**2 * of_fused.square().mean()
    # The bound that the documentation states.
    largest_logit = (Q.norm(dim=-1).amax() * K.norm(dim=-1).amax() / 64**0.5).item()
    assert error.abs().max() <= (2 * (64 + 3) * largest_logit + 2 * 1024 + 8) * 2**-24 * V.abs().max()


@pytest.mark.parametrize(
    "shapes", [((0, 4), (3, 4), (3, 5)), ((3, 4), (0, 4), (0, 5)), ((3, 4), (3, 4), (3, 0))], ids=str
)
@pytest.mark.parametrize("batch", [(), (0,), (2,), (0, 2)], ids=str)
@pytest.mark.parametrize("mask", [None, causal, "tensor"], ids=str)
def test_empty_sizes(shapes: tuple, batch: tuple, mask: Any) -> None:
    Q, K, V = (torch.ones(*batch, *shape, requires_grad=True) for shape in shapes)
    if mask == "tensor":
        mask = torch.ones(*batch, Q.shape[-2], K.shape[-2]).bool()
    output = blockwise_attention(Q, K, V, mask)
    assert output.shape == (*batch, shapes[0][0], shapes[2][1])
    assert not output.any()
    output.sum().backward()
    for x in (Q, K, V):
        assert x.grad is not None
        assert x.grad.shape == x.shape


@pytest.mark.parametrize("magnitude", [1.0, 100.0])
def test_a_query_that_sees_nothing_gets_zeros_and_gives_no_gradient(magnitude: float) -> None:
    Q, K, V = (normal(6, 4, seed=i).mul(magnitude).requires_grad_() for i in range(3))
    mask = torch.ones(6, 6).bool()
    mask[1] = mask[4] = False
    output = blockwise_attention(Q, K, V, mask, block_size=3)
    assert not output[[1, 4]].any()
    Q_grad, *others = torch.autograd.grad(output.sum(), (Q, K, V))
    assert not Q_grad[[1, 4]].any()
    assert all(torch.isfinite(grad).all() for grad in (Q_grad, *others))


@pytest.mark.parametrize("block_size", [None, 4])
@pytest.mark.parametrize("magnitude", [1e3, 1e18])
def test_large_logits_do_not_overflow(block_size: int | None, magnitude: float) -> None:
    Q, K, V = (normal(9, 4, seed=i) for i in range(3))
    Q, K = Q * magnitude, K * magnitude
    torch.testing.assert_close(
        blockwise_attention(Q, K, V, causal, block_size=block_size),
        scaled_dot_product_attention(Q, K, V, torch.ones(9, 9).tril().bool()),
    )


def test_large_values_do_not_overflow() -> None:
    Q, K, V = 4 * torch.ones(2, 64), 4 * torch.ones(3, 64), torch.full((3, 2), 1e38)
    torch.testing.assert_close(blockwise_attention(Q / 2, K / 2, V), V[:2])


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_poison_in_hidden_keys_harms_nobody(poison: float) -> None:
    Q, K, V = (normal(6, 4, seed=i) for i in range(3))
    clean = blockwise_attention(Q, K, V, padding(torch.tensor(4)), block_size=3)
    K[4:] = poison
    torch.testing.assert_close(blockwise_attention(Q, K, V, padding(torch.tensor(4)), block_size=3), clean)


def test_nan_in_a_visible_key_is_not_swallowed() -> None:
    Q, K, V = (normal(6, 4, seed=i) for i in range(3))
    K[2] = math.nan
    output = blockwise_attention(Q, K, V, causal, block_size=2)
    assert torch.equal(output.isnan().all(-1), torch.arange(6) >= 2)


@pytest.mark.parametrize("mask", [None, causal, "tensor"], ids=str)
def test_inputs_may_have_any_strides_and_are_not_modified(mask: Any) -> None:
    packed = normal(2, 30, 3 * 4 * 8).unflatten(-1, (3, 4, 8))
    Q, K, V = (x.transpose(1, 2).requires_grad_() for x in packed.unbind(2))
    if mask == "tensor":
        mask = drawn_mask(30, 2).repeat(1, 30)[:, ::2].T
    before = [x.clone() for x in (Q, K, V)]
    actual = blockwise_attention(Q, K, V, mask, block_size=8)
    actual.sum().backward()
    matrix = torch.ones(30, 30).tril().bool() if isinstance(mask, Mask) else mask
    torch.testing.assert_close(actual, scaled_dot_product_attention(Q, K, V, matrix))
    assert all(torch.equal(x, y) for x, y in zip((Q, K, V), before, strict=True))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """`threads(n)`: have torch use n threads until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("mask", [None, causal], ids=["no mask", "causal"])
@pytest.mark.parametrize("magnitude", [1.0, 20.0])
def test_block_size_changes_the_result_by_rounding_alone(mask: Mask | None, magnitude: float) -> None:
    Q, K, V = (normal(2, 700, 16, seed=i) for i in range(3))
    expected = blockwise_attention(magnitude * Q, K, V, mask)
    for block_size in (64, 100, 1000):
        torch.testing.assert_close(blockwise_attention(magnitude * Q, K, V, mask, block_size=block_size), expected)


@pytest.mark.parametrize("magnitude", [1.0, 20.0])
@pytest.mark.parametrize(
    "mask", [None, causal & window(90), document(torch.arange(300) // 70)], ids=["no mask", "window", "document"]
)
def test_threads_change_no_bit(mask: Mask | None, magnitude: float, threads: Callable[[int], None]) -> None:
    Q, K, V = (normal(3, 300, 16, seed=i).requires_grad_() for i in range(3))

    def result() -> list[bytes]:
        output = blockwise_attention(magnitude * Q, K, V, mask, block_size=64)
        gradients = torch.autograd.grad(output.square().sum(), (Q, K, V))
        return [x.detach().numpy().tobytes() for x in (output, *gradients)]

    threads(1)
    alone = result()
    for count in (2, 3, 8):
        threads(count)
        assert result() == alone


@pytest.mark.parametrize("name", ["no mask", "causal", "padding", "hides a query"])
def test_a_short_call_without_gradients(name: str, threads: Callable[[int], None]) -> None:
    Q, K, V = (normal(3, 40, 8, seed=i) for i in range(3))
    mask = {"no mask": None, "causal": causal, "padding": padding(torch.tensor(30))}.get(name, drawn_mask(40, 40))
    if isinstance(mask, Tensor):
        mask[5] = False
    one = None if mask is None else as_mask(mask).tile(slice(0, 40), slice(0, 40), Q.device)
    threads(1)
    alone = blockwise_attention(Q, K, V, mask)
    torch.testing.assert_close(alone, scaled_dot_product_attention(Q, K, V, one))
    for count in (2, 3):
        threads(count)
        assert torch.equal(blockwise_attention(Q, K, V, mask), alone)
    if name == "padding":
        K[:, 30:] = math.nan
        torch.testing.assert_close(blockwise_attention(Q, K, V, mask), alone)


@pytest.mark.parametrize("heads", [1, 2, 3, 8])
@pytest.mark.parametrize("shape", [(128, 128, 64), (100, 37, 7), (1, 300, 128), (512, 512, 64)], ids=str)
def test_threads_change_no_bit_of_a_short_call(
    heads: int, shape: tuple[int, int, int], threads: Callable[[int], None]
) -> None:
    queries, keys, width = shape
    Q, K, V = (normal(heads, length, width, seed=i) for i, length in enumerate((queries, keys, keys)))
    threads(1)
    alone = blockwise_attention(Q, K, V)
    for count in (2, 3, 8):
        threads(count)
        assert torch.equal(blockwise_attention(Q, K, V), alone)
        assert torch.get_num_threads() == count


def threads_here_and_in_a_new_thread() -> tuple[int, int]:
    with ThreadPoolExecutor(1) as executor:
        return torch.get_num_threads(), executor.submit(torch.get_num_threads).result()


def test_every_thread_computes_on_one_and_the_count_is_given_back(threads: Callable[[int], None]) -> None:
    together = Barrier(2, timeout=60)
    seen = {}

    def work(items: Iterator[int]) -> None:
        for item in items:
            together.wait()  # each of the two has an item
            seen[item] = current_thread(), torch.get_num_threads(), torch.is_grad_enabled()

    threads(2)
    with torch.no_grad():
        share_out(work, range(6))
    assert sorted(seen) == list(range(6))
    assert len({thread for thread, *_ in seen.values()}) == 2
    assert all((count, gradients) == (1, False) for _, count, gradients in seen.values())
    assert threads_here_and_in_a_new_thread() == (2, 2)


@pytest.mark.parametrize("fails_here", [True, False], ids=["in the calling thread", "in another"])
def test_an_exception_in_a_thread_ends_all_and_gives_the_count_back(
    fails_here: bool, threads: Callable[[int], None]
) -> None:
    together = Barrier(2, timeout=60)
    taken = []

    def work(items: Iterator[int]) -> None:
        for item in items:
            taken.append(item)
            if len(taken) <= 2:
                together.wait()
            if (current_thread() is main_thread()) == fails_here:
                raise ArithmeticError(f"item {item}")
            return  # and leave four items

    threads(2)
    with pytest.raises(ArithmeticError, match=r"item [01]"):
        share_out(work, range(6))
    assert sorted(taken) == [0, 1]
    assert threads_here_and_in_a_new_thread() == (2, 2)


def test_inference_mode_holds_in_every_thread(threads: Callable[[int], None]) -> None:
    threads(2)
    with torch.inference_mode():
        Q, K, V = (normal(3, 90, 4, seed=i) for i in range(3))
        output = blockwise_attention(Q, K, V, causal, block_size=8)
    assert output.is_inference()
    torch.testing.assert_close(output, scaled_dot_product_attention(Q, K, V, torch.ones(90, 90).tril().bool()))


def test_the_output_may_be_modified_in_place() -> None:
    Q, K, V = (normal(2, 4, 3, seed=i).requires_grad_() for i in range(3))
    output = blockwise_attention(Q, K, V)
    output += 1
    torch.testing.assert_close(output, scaled_dot_product_attention(Q, K, V) + 1)


class LargestTensor(TorchFunctionMode):
    """Notes the number of elements of the largest tensor that is made, and of all scores."""

    elements = scores = 0

    def __torch_function__(self, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not result._is_view():
            self.elements = max(self.elements, result.numel())
        if function is torch.baddbmm:
            self.scores += result.numel()
        return result


def test_grouped_queries_copy_neither_keys_nor_values(threads: Callable[[int], None]) -> None:
    threads(1)  # LargestTensor sees what its own thread does
    Q, K, V = normal(64, 32, 4), normal(1, 4000, 4, seed=1), normal(1, 4000, 4, seed=2)
    with LargestTensor() as largest:
        blockwise_attention(Q, K, V, block_size=16)
    assert largest.elements < 64 * 4000


@pytest.mark.parametrize(
    ("mask", "blocks"),
    [
        (None, 64),
        (causal, 36),
        (torch.ones(80, 80).tril().bool(), 36),
        (causal & window(11), 15),
        (padding(torch.tensor(35)), 32),
        (document(torch.arange(80) // 20), 16),
        (torch.zeros(80, 80).bool(), 0),
    ],
    ids=["none", "causal", "causal tensor", "causal window", "padding", "document", "nothing"],
)
def test_blocks_in_which_nothing_is_visible_are_not_computed(
    mask: Any, blocks: int, threads: Callable[[int], None]
) -> None:
    threads(1)
    Q, K, V = (normal(1, 80, 4, seed=i) for i in range(3))
    with LargestTensor() as largest:
        blockwise_attention(Q, K, V, mask, block_size=10)
    assert largest.scores == blocks * 100
    assert largest.elements <= 80 * 10  # the largest thing is one strip of the mask


@pytest.mark.parametrize("combine", [lambda mask: mask, lambda mask: causal & mask], ids=["tensor", "combined"])
def test_a_mask_that_changes_before_the_backward_pass_is_an_error(combine: Callable[[Tensor], Any]) -> None:
    Q, K, V = (normal(4, 3, seed=i).requires_grad_() for i in range(3))
    mask = torch.ones(4, 4).bool()
    output = blockwise_attention(Q, K, V, combine(mask))
    mask[2] = False
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_mask_that_changes_between_calls_is_seen_as_it_is_then() -> None:
    Q, K, V = (normal(4, 3, seed=i) for i in range(3))
    mask = torch.ones(4, 4).bool()
    blockwise_attention(Q, K, V, mask)
    mask.tril_()
    torch.testing.assert_close(blockwise_attention(Q, K, V, mask), scaled_dot_product_attention(Q, K, V, mask))


def test_a_second_derivative_is_refused() -> None:
    Q, K, V = (normal(4, 3, seed=i).requires_grad_() for i in range(3))
    with pytest.raises(RuntimeError, match=r"once, but .*; use scaled_dot_product_attention"):
        torch.autograd.grad(blockwise_attention(Q, K, V).sum(), Q, create_graph=True)


X = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X, X, X.double()), TypeError, "expected one dtype"),
        ((X, X, X[:2]), ValueError, "with the same keys"),
        ((X, X[:, :3], X), ValueError, "with the same d_k"),
        ((X, X, X, torch.ones(3, 3)), TypeError, "expected a boolean mask"),
        ((X, X, X, "causal"), TypeError, "expected a boolean mask .* got str"),
        ((X, X, X, document(torch.zeros(2).long())), ValueError, r"a mask that broadcasts to .* = \(3, 3\)"),
        ((X[:1], X, X, document(torch.zeros(3).long())), ValueError, r"a mask that broadcasts to .* = \(1, 3\)"),
        ((X.expand(2, 3, 4), X, X, padding(torch.tensor([1, 2, 3]))), ValueError, "expected leading dimensions"),
        ((X, X, X, document(torch.zeros(3, device="meta").long())), ValueError, "expected one device"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        blockwise_attention(*arguments)


def test_a_block_size_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a block_size of at least 1, got 0; None chooses one"):
        blockwise_attention(X, X, X, block_size=0)
