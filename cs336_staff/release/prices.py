"""The price of a fault: programs with one fault, or that compute next to nothing, with their points.

`uv run python -m cs336_staff.release.prices` prints the tables of cs336_staff/docs/points.md; a test compares the two.

A fault is made wherever the program uses what is faulty: with a wrong softmax attention is wrong, and with a wrong
attention multi-head attention. Bonus problems are not counted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.suite import Suite
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.misconceptions.entry import Misconception, in_attention, in_multihead, in_softmax
from cs336_staff.authoring.misconceptions.softmax import exponentials, normalised
from cs336_staff.authoring.parts import Adapter, attention, softmax, split, widened
from cs336_staff.authoring.right_styles import RIGHT_STYLES
from cs336_staff.grading.carried_forward import CarriedForward
from cs336_staff.release.price_list import in_points, row
from cs336_staff.release.verify import both_suites, run_suite

Program = Mapping[str, Adapter]
RIGHT: Program = RIGHT_STYLES["einsum"]


def three_dimensions(x: Tensor, num_heads: int) -> Tensor:
    batch, length, d_model = x.shape
    return x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)


def even(x: Tensor, num_heads: int) -> Tensor:
    if x.shape[-1] // num_heads % 2:
        raise ValueError("RoPE needs an even d_head")
    return split(x, num_heads)


def no_vectors(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    if Q.ndim == 2:
        raise ValueError("not enough values to unpack (expected 3, got 2)")
    return attention(Q, K, V, mask)


def without_broadcasting(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    if Q.shape[:-2] != K.shape[:-2]:
        raise RuntimeError("the sizes of the batches differ")
    return attention(Q, K, V, mask)


def in_float32(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q.float(), K.float(), V.float(), mask).to(Q.dtype)


def with_epsilon(epsilon: float) -> Misconception:
    return in_softmax("", "", lambda x, dim: normalised(exponentials(x, dim), dim, epsilon))


def with_dropout(x: Tensor, dim: int) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a price is the same every time
        return F.dropout(softmax(x, dim), 0.1)


FAULTS: dict[str, Misconception] = {
    "scores not divided by √d_k": CATALOGUE["attention-no-scale"],
    "√d_v in place of √d_k": CATALOGUE["attention-by-root-d_v"],
    "ε = 1e-9 in the denominator of softmax": with_epsilon(1e-9),
    "ε = 1e-6 there": with_epsilon(1e-6),
    "no `keepdim=True` in softmax": CATALOGUE["softmax-no-keepdim"],
    "softmax computes float64 in float32": in_softmax("", "", lambda x, dim: softmax(x.float(), dim).to(x.dtype)),
    "attention computes float64 in float32": in_attention("", "", in_float32),
    "softmax over the queries": CATALOGUE["attention-softmax-over-queries"],
    "attention refuses Q, K, V of two dimensions": in_attention("", "", no_vectors),
    "K and V do not broadcast": in_attention("", "", without_broadcasting),
    "NaN for a query that may attend to nothing": CATALOGUE["attention-nan-for-nothing"],
    "Q changed in place": CATALOGUE["attention-in-place"],
    "attention detached from autograd": CATALOGUE["attention-detached"],
    "mask inverted": CATALOGUE["attention-mask-inverted"],
    "mask ignored": CATALOGUE["attention-mask-ignored"],
    "crash without a mask": CATALOGUE["attention-mask-required"],
    "dropout left on": in_attention("", "", softmax=with_dropout),
    "RoPE on pairs (i, i + d_k/2)": CATALOGUE["rope-half-split"],
    "RoPE ignores the positions": CATALOGUE["rope-positions-ignored"],
    "multi-head ignores the positions": CATALOGUE["multihead-positions-ignored"],
    "causal mask off by one": CATALOGUE["multihead-mask-peeks"],
    "W_O not used": CATALOGUE["multihead-no-output-projection"],
    "heads split by `view` alone": CATALOGUE["multihead-split-by-view"],
    "multi-head needs exactly three dimensions": in_multihead("", "", split=three_dimensions),
    "multi-head needs an even d_head, without RoPE too": in_multihead("", "", split=even),
}


def in_half_too(adapter: Adapter) -> Adapter:
    """The adapter, given half precision in float32, so that its fault is not met by another."""

    def wide(x: Any) -> Any:
        return widened(x) if isinstance(x, Tensor) else x

    def call(*arguments: Any, **named: Any) -> Any:
        answer = adapter(*map(wide, arguments), **{name: wide(x) for name, x in named.items()})
        dtype = next(x.dtype for x in (*arguments, *named.values()) if isinstance(x, Tensor))
        return answer.to(dtype) if dtype in (torch.float16, torch.bfloat16) else answer

    return call


FAULTY: dict[str, Program] = {
    **{
        what: {**RIGHT, **{call: in_half_too(adapter) for call, adapter in fault.adapters.items()}}
        for what, fault in FAULTS.items()
    },
    "half precision computed in half precision": {**RIGHT, **with_epsilon(0.0).adapters},
}


def always(value: float) -> Program:
    """Tensors of the right shape and dtype, all of one number."""

    def filled(right: Any) -> Any:
        return tuple(map(filled, right)) if isinstance(right, tuple) else torch.full_like(right, value)

    def of(right: Adapter) -> Adapter:
        return lambda *arguments, **named: filled(right(*arguments, **named))

    return {call: of(right) for call, right in RIGHT.items()}


def uniform(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(torch.zeros_like(Q), K, V, mask)


IDENTITY: Program = {
    "run_softmax": lambda in_features, dim: in_features,
    "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: V,
    "run_linear": lambda in_features, **rest: in_features,
    "run_rope": lambda in_query_or_key, **rest: in_query_or_key,
    "run_multihead_self_attention": lambda in_features, **rest: in_features,
    "run_multihead_self_attention_with_rope": lambda in_features, **rest: in_features,
    "run_multihead_attention": lambda query, **rest: query,
    "run_blockwise_attention": lambda Q, K, V, mask, block_size: V,
}
TRIVIAL: dict[str, Program] = {
    "zeros": always(0.0),
    "ones": always(1.0),
    "NaN": always(torch.nan),
    "the input itself": IDENTITY,
    "attention with uniform weights, and nothing but attention": in_attention("", "", uniform).adapters,
    "the mean of V": in_attention("", "", lambda Q, K, V, mask: uniform(Q, K, V, None)).adapters,
    "softmax, and nothing else": {"run_softmax": RIGHT["run_softmax"]},
}


def earned(suite: Suite, program: Program, bonus: bool = False) -> dict[str, float]:
    """The points of a program in each problem that is, or is not, a bonus."""
    some = replace(suite, tests=[test for test in suite.tests if test.bonus == bonus])
    points = {test.problem: 0.0 for test in some.tests}
    carried = CarriedForward(some)
    for test, result in zip(some.tests, run_suite(some, program), strict=True):
        points[test.problem] += carried.judge(test, result).points
    return points


def tables(suite: Suite) -> Iterator[str]:
    """Write two tables, line by line: what each fault costs, and what each trivial program earns, by problem."""
    titles = [*(problem.title for problem in suite.problems.values() if not problem.bonus), "Total"]
    for programs, full in ((FAULTY, earned(suite, RIGHT)), (TRIVIAL, {})):
        yield row("Loses" if full else "Earns", titles)
        yield row("---", ["---:"] * len(titles))
        for what, program in programs.items():
            points = [abs(full.get(problem, 0.0) - points) for problem, points in earned(suite, program).items()]
            yield row(what, map(in_points, [*points, sum(points)]))


if __name__ == "__main__":
    for line in tables(both_suites(find_root(Path(__file__).parent))):
        print(line, flush=True)
