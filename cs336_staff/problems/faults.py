"""What prices are stated of: what tests look at, faults that are common, and programs that compute nothing.

A fault is made wherever the program uses what is faulty: with a wrong softmax attention is wrong, and with a wrong
attention multi-head attention. Bonus problems are not counted.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cs336_kit.problems.multihead_self_attention.program import by_head
from cs336_kit.problems.scaled_dot_product_attention.program import RIGHT as RIGHT_STEPS
from cs336_kit.problems.scaled_dot_product_attention.program import attend
from cs336_staff.authoring.programs import CATALOGUE, RIGHT, put_in_place
from cs336_staff.authoring.room import Adapter, Misconception, wrong
from cs336_staff.problems.scaled_dot_product_attention.programs import attention
from cs336_staff.problems.softmax.mistakes import exponentials, normalised
from cs336_staff.problems.softmax.programs import softmax, widened

# What a test looks at, by its name: the first that matches counts.
LOOKS_AT = {
    "inputs are not changed": r"inputs?_alone|side_effects",
    "gradients": r"gradients",
    "half precision is computed in float32": r"half_precision",
    "float64 is computed in float64": r"last_digit\[float64",
    "the last digits": r"last_digit",
    "large logits, and −∞": r"large-logits|far-apart|minus-infinity",
    "zeros for a query that may attend to nothing": r"nothing",
    "K and V broadcast": r"key-value-head",
    "no mask": r"no-mask|without_a_mask",
    "no leading dimension": r"no-batch|\[1d|\[one-dimension|vector|by-hand",
    "two or more leading dimensions": r"two-batch-dims|five-batch|with-heads|\[4d|\[5d|more-dimensions",
    "an odd d_head without RoPE": r"heads-of-one",
    "token positions that are not given": r"not-given|from_zero",
    "the right answer, where no line below applies": r"",
}

Program = Mapping[str, Adapter]


def made_in(problem: str, program: Any = None, **parts: Any) -> Misconception:
    return put_in_place(wrong("", program, **parts), problem)


in_softmax = partial(made_in, "softmax")
in_attention = partial(made_in, "scaled_dot_product_attention")
in_multihead = partial(made_in, "multihead_self_attention")


def three_dimensions(x: Tensor, num_heads: int) -> Tensor:
    batch, length, d_model = x.shape
    return x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)


def even(x: Tensor, num_heads: int) -> Tensor:
    if x.shape[-1] // num_heads % 2:
        raise ValueError("RoPE needs an even d_head")
    return by_head(x, num_heads)


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
    return in_softmax(lambda x, dim: normalised(exponentials(x, dim), dim, epsilon))


def with_dropout(scores: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a price is the same every time
        return F.dropout(softmax(scores, -1), 0.1)


FAULTS: dict[str, Misconception] = {
    "scores not divided by √d_k": CATALOGUE["attention-scale-missing"],
    "√d_v in place of √d_k": CATALOGUE["attention-scale-by-root-d_v"],
    "ε = 1e-9 in the denominator of softmax": with_epsilon(1e-9),
    "ε = 1e-6 there": with_epsilon(1e-6),
    "no `keepdim=True` in softmax": CATALOGUE["softmax-keepdim-sum"],
    "softmax computes float64 in float32": in_softmax(lambda x, dim: softmax(x.float(), dim).to(x.dtype)),
    "attention computes float64 in float32": in_attention(in_float32),
    "softmax over the queries": CATALOGUE["attention-softmax-over-queries"],
    "attention refuses Q, K, V of two dimensions": in_attention(no_vectors),
    "K and V do not broadcast": in_attention(without_broadcasting),
    "NaN for a query that may attend to nothing": CATALOGUE["attention-nothing-nan"],
    "Q changed in place": CATALOGUE["attention-in-place"],
    "attention detached from autograd": CATALOGUE["attention-detached"],
    "mask inverted": CATALOGUE["attention-mask-inverted"],
    "mask ignored": CATALOGUE["attention-mask-ignored"],
    "crash without a mask": CATALOGUE["attention-mask-required"],
    "dropout left on": in_attention(softmax=with_dropout),
    "RoPE on pairs (i, i + d_k/2)": CATALOGUE["rope-pairs-halves"],
    "RoPE ignores the positions": CATALOGUE["rope-row-number"],
    "multi-head ignores the positions": CATALOGUE["multihead-rope-positions-ignored"],
    "causal mask off by one": CATALOGUE["multihead-mask-peeks"],
    "W_O not used": CATALOGUE["multihead-output-unused"],
    "heads split by `view` alone": CATALOGUE["multihead-split-by-view"],
    "multi-head needs exactly three dimensions": in_multihead(split=three_dimensions),
    "multi-head needs an even d_head, without RoPE too": in_multihead(split=even),
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
    "half precision computed in half precision": {
        **RIGHT,
        **with_epsilon(0.0).adapters,
        "run_scaled_dot_product_attention": partial(attend, RIGHT_STEPS),
    },
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
    "attention with uniform weights, and nothing but attention": in_attention(uniform).adapters,
    "the mean of V": in_attention(lambda Q, K, V, mask: uniform(Q, K, V, None)).adapters,
    "softmax, and nothing else": {"run_softmax": RIGHT["run_softmax"]},
}
