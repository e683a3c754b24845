"""What the property tests draw: specs of small cases, for hypothesis to vary and to shrink."""

from collections.abc import Callable
from dataclasses import replace

import torch
from hypothesis import strategies as st

from cs336_staff.authoring.cases import draws
from cs336_staff.authoring.cases.spec import CaseSpec, Inputs

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

POSITIONS = ("in order", "offset", "permuted", "spaced", "per batch")

sizes = st.integers(1, 5)
batches = st.lists(st.integers(1, 3), max_size=3)


def changed(specs: st.SearchStrategy[CaseSpec], change: Callable[[Inputs], Inputs]) -> st.SearchStrategy[CaseSpec]:
    """The same cases with their inputs changed, before the right answer is computed."""
    return specs.map(lambda spec: replace(spec, draw=lambda generator: change(spec.draw(generator))))


@st.composite
def softmaxes(
    draw: st.DrawFn,
    dtypes: tuple[torch.dtype, ...] = FLOATS,
    gradients: tuple[str, ...] = (),
) -> CaseSpec:
    shape = draw(st.lists(sizes, min_size=1, max_size=4))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    scale = draw(st.sampled_from((1.0, 10.0) if gradients else (1.0, 30.0, 1000.0)))
    drawing = draws.softmax(*shape, dim=dim, scale=scale, dtype=draw(st.sampled_from(dtypes)))
    return CaseSpec("softmax", "run_softmax", drawing, gradients)


@st.composite
def attentions(
    draw: st.DrawFn,
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64),
    masks: tuple[str | None, ...] = (None, "causal", "random", "full"),
    batch: st.SearchStrategy[list[int]] = batches,
    gradients: tuple[str, ...] = (),
) -> CaseSpec:
    drawing = draws.attention(
        *draw(batch),
        queries=draw(sizes),
        keys=draw(sizes),
        d_k=draw(sizes),
        d_v=draw(sizes),
        mask=draw(st.sampled_from(masks)),
        dtype=draw(st.sampled_from(dtypes)),
    )
    return CaseSpec("attention", "run_scaled_dot_product_attention", drawing, gradients)


@st.composite
def linears(draw: st.DrawFn) -> CaseSpec:
    return CaseSpec("linear", "run_linear", draws.linear(*draw(batches), d_in=draw(sizes), d_out=draw(sizes)))


@st.composite
def ropes(draw: st.DrawFn, positions: tuple[str, ...] = POSITIONS) -> CaseSpec:
    drawing = draws.rope(
        *draw(batches),
        positions=draw(st.sampled_from(positions)),
        sequence=draw(sizes),
        d_k=2 * draw(sizes),
        theta=draw(st.sampled_from((10000.0, 100.0))),
    )
    return CaseSpec("rope", "run_rope", drawing)


@st.composite
def multiheads(draw: st.DrawFn, min_sequence: int = 1) -> CaseSpec:
    heads = draw(st.integers(1, 4))
    drawing = draws.multihead(
        *draw(batches), sequence=draw(st.integers(min_sequence, 5)), d_model=heads * draw(sizes), num_heads=heads
    )
    return CaseSpec("multihead", "run_multihead_self_attention", drawing)


@st.composite
def multiheads_with_rope(draw: st.DrawFn) -> CaseSpec:
    heads = draw(st.integers(1, 4))
    drawing = draws.multihead(
        *draw(batches),
        positions=draw(st.sampled_from(("not given", *POSITIONS))),
        sequence=draw(sizes),
        d_model=2 * heads * draw(st.integers(1, 3)),
        num_heads=heads,
    )
    return CaseSpec("multihead-rope", "run_multihead_self_attention_with_rope", drawing)


@st.composite
def attention_modules(draw: st.DrawFn) -> CaseSpec:
    """In evaluation, or with nothing to drop: which weights are dropped differs from program to program."""
    dropout, training = draw(st.sampled_from(((0.0, True), (0.5, False))))
    drawing = draws.attention_module(
        *draw(batches),
        queries=draw(sizes),
        keys=draw(sizes),
        d_k=draw(sizes),
        d_v=draw(sizes),
        mask=draw(st.sampled_from((None, "causal", "random", "full"))),
        dropout=dropout,
        training=training,
    )
    return CaseSpec("attention_module", "run_scaled_dot_product_attention_module", drawing)


@st.composite
def multihead_attentions(draw: st.DrawFn) -> CaseSpec:
    heads = draw(st.integers(1, 4))
    drawing = draws.multihead_attention(
        *draw(batches),
        queries=draw(sizes),
        keys=draw(sizes),
        d_model=heads * draw(sizes),
        num_heads=heads,
        mask=draw(st.sampled_from((None, "padding", "full", "same for all", "per head"))),
    )
    return CaseSpec("multihead_attention", "run_multihead_attention", drawing)


@st.composite
def blockwises(draw: st.DrawFn) -> CaseSpec:
    drawing = draws.blockwise(
        *draw(batches),
        queries=draw(sizes),
        keys=draw(sizes),
        d_k=draw(sizes),
        d_v=draw(sizes),
        block_size=draw(st.sampled_from((None, 1, 2, 3, 100))),
        mask=draw(st.sampled_from((None, "causal", "random", "full"))),
        scale=draw(st.sampled_from((1.0, 100.0))),
        dtype=draw(st.sampled_from((torch.float32, torch.float64))),
    )
    return CaseSpec("blockwise", "run_blockwise_attention", drawing)
