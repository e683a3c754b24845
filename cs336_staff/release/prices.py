"""What a fault costs: programs with one fault, and programs that compute next to nothing, with their points.

`uv run python -m cs336_staff.release.prices` prints the tables of cs336_staff/docs/points.md.

A fault is made wherever the program uses what is faulty: with a wrong softmax attention is wrong, and with a wrong
attention multi-head attention. Bonus problems are not counted.
"""

from collections.abc import Callable, Mapping
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
from cs336_staff.authoring.parts import Adapter, attention, softmax, widened
from cs336_staff.authoring.right_styles import RIGHT_STYLES
from cs336_staff.release.verify import both_suites, run_suite


def in_float32(adapter: Adapter) -> Adapter:
    """The adapter, which computes half precision in float32: what is wrong with it is something else."""

    def wide(x: Any) -> Any:
        return widened(x) if isinstance(x, Tensor) else x

    def call(*arguments: Any, **named: Any) -> Any:
        answer = adapter(*map(wide, arguments), **{name: wide(x) for name, x in named.items()})
        dtype = next(x.dtype for x in (*arguments, *named.values()) if isinstance(x, Tensor))
        return answer.to(dtype) if dtype in (torch.float16, torch.bfloat16) else answer

    return call


def with_batch(x: Tensor, num_heads: int) -> Tensor:
    batch, length, d_model = x.shape
    return x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)


def never_two_dimensions(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    if Q.ndim == 2:
        raise ValueError("not enough values to unpack (expected 3, got 2)")
    return attention(Q, K, V, mask)


def without_broadcasting(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    if Q.shape[:-2] != K.shape[:-2]:
        raise RuntimeError("Expected size for first two dimensions of batch2 tensor to be: [6, 11] but got: [2, 11].")
    return attention(Q, K, V, mask)


def rope_or_not(x: Tensor, num_heads: int) -> Tensor:
    if x.shape[-1] // num_heads % 2:
        raise ValueError("d_k must be even")
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def through_float32(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return attention(Q.float(), K.float(), V.float(), mask).to(Q.dtype)


def epsilon(id: str, size: float) -> Misconception:
    return in_softmax(id, "", lambda x, dim: normalised(exponentials(x, dim), dim, epsilon=size))


FAULTS: dict[str, Misconception] = {
    "the scores are not divided by √d_k": CATALOGUE["attention-no-scale"],
    "√d_v instead of √d_k": CATALOGUE["attention-by-root-d_v"],
    "ε = 1e-9 in the denominator of softmax": epsilon("softmax-epsilon-9", 1e-9),
    "ε = 1e-6 there": epsilon("softmax-epsilon-6", 1e-6),
    "`keepdim=True` is missing": CATALOGUE["softmax-no-keepdim"],
    "softmax computes float64 in float32": in_softmax(
        "softmax-float32-inside", "", lambda x, dim: softmax(x.float(), dim).to(x.dtype)
    ),
    "attention computes float64 in float32": in_attention("attention-float32-inside", "", through_float32),
    "softmax over the queries": CATALOGUE["attention-softmax-over-queries"],
    "attention refuses Q, K, V without a batch": in_attention("attention-no-2d", "", never_two_dimensions),
    "K and V do not broadcast": in_attention("attention-no-broadcasting", "", without_broadcasting),
    "NaN for a query that may attend to nothing": CATALOGUE["attention-nan-for-nothing"],
    "Q is changed in place": CATALOGUE["attention-in-place"],
    "the answer of attention is detached": CATALOGUE["attention-detached"],
    "the mask is inverted": CATALOGUE["attention-mask-inverted"],
    "the mask is ignored": CATALOGUE["attention-mask-ignored"],
    "a crash without a mask": CATALOGUE["attention-mask-required"],
    "dropout stays on": in_attention("attention-dropout", "", softmax=lambda x, dim: F.dropout(softmax(x, dim), 0.1)),
    "RoPE turns pairs (i, i + d_k/2)": CATALOGUE["rope-half-split"],
    "RoPE ignores the positions": CATALOGUE["rope-positions-ignored"],
    "multi-head ignores the positions": CATALOGUE["multihead-positions-ignored"],
    "the causal mask is off by one": CATALOGUE["multihead-mask-peeks"],
    "W_O is not used": CATALOGUE["multihead-no-output-projection"],
    "heads are split by `view` alone": CATALOGUE["multihead-split-by-view"],
    "multi-head needs `batch, length, d_model = x.shape`": in_multihead("multihead-3d", "", split=with_batch),
    "multi-head needs an even d_head without RoPE": in_multihead("multihead-even", "", split=rope_or_not),
}


def faulty(fault: Misconception) -> Mapping[str, Adapter]:
    """Adapters that have this fault and are right otherwise."""
    return {**RIGHT_STYLES["einsum"], **{name: in_float32(adapter) for name, adapter in fault.adapters.items()}}


def half_in_half() -> Mapping[str, Adapter]:
    """Right, but softmax and attention compute half precision in half precision."""
    wrong = in_softmax("half", "", lambda x, dim: normalised(exponentials(x, dim), dim))
    return {**RIGHT_STYLES["einsum"], **wrong.adapters}


# What each of these makes of its arguments is called on the arguments of every adapter, by name.
ANSWERS = ("in_features", "in_query_or_key", "V")


def constant(value: float) -> Mapping[str, Adapter]:
    """Adapters that give tensors of the right shape, all of one number."""
    return shaped(lambda right: torch.full_like(right, value))


def shaped(change: Callable[[Tensor], Tensor]) -> Mapping[str, Adapter]:
    """The right answers, changed."""

    def of(adapter: Adapter) -> Adapter:
        return lambda *arguments, **named: change(adapter(*arguments, **named))

    return {name: of(adapter) for name, adapter in RIGHT_STYLES["einsum"].items() if "module" not in name}


def identity() -> Mapping[str, Adapter]:
    return {
        "run_softmax": lambda in_features, dim: in_features,
        "run_scaled_dot_product_attention": lambda Q, K, V, mask=None: V,
        "run_linear": lambda in_features, **rest: in_features,
        "run_rope": lambda in_query_or_key, **rest: in_query_or_key,
        "run_multihead_self_attention": lambda in_features, **rest: in_features,
        "run_multihead_self_attention_with_rope": lambda in_features, **rest: in_features,
    }


def uniform(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    return attention(torch.zeros_like(Q), K, V, mask)


TRIVIAL: dict[str, Mapping[str, Adapter]] = {
    "zeros": constant(0.0),
    "ones": constant(1.0),
    "NaN": constant(torch.nan),
    "the input as it is (V, x)": identity(),
    "the mean of V": in_attention("", "", lambda Q, K, V, mask: uniform(Q, K, V)).adapters,
    "uniform weights where the mask allows": in_attention("", "", uniform).adapters,
    "the right softmax alone": {"run_softmax": RIGHT_STYLES["einsum"]["run_softmax"]},
}


def points(suite: Suite, adapters: Mapping[str, Adapter]) -> dict[str, float]:
    """What a program earns in each problem that is no bonus."""
    earned = {problem.id: 0.0 for problem in suite.problems.values() if not problem.bonus}
    for result in run_suite(suite, adapters):
        earned[result.problem] += result.points
    return earned


def required(suite: Suite) -> Suite:
    """The suite without its bonus tests."""
    from dataclasses import replace

    return replace(suite, tests=[test for test in suite.tests if not test.bonus])


def main() -> None:
    """Print what each fault costs, and what each trivial program earns."""
    suite = required(both_suites(find_root(Path(__file__).parent)))
    full = {id: p.points for id, p in suite.problems.items() if not p.bonus}
    programs = {**{n: faulty(f) for n, f in FAULTS.items()}, "half precision computed in half": half_in_half()}
    for name, program in programs.items():
        got = points(suite, program)
        lost = {id: full[id] - got[id] for id in full}
        print(
            f"| {name} | {' | '.join(f'{x:.2f}' if x > 1e-9 else '' for x in lost.values())} | {sum(lost.values()):.2f} |",
            flush=True,
        )
    for name, program in TRIVIAL.items():
        got = points(suite, program)
        print(
            f"| {name} | {' | '.join(f'{x:.2f}' if x > 1e-9 else '' for x in got.values())} | {sum(got.values()):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
