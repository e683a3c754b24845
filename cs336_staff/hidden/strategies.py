"""What the property tests draw: specs of small cases, for hypothesis to vary and to shrink.

A property is asked of several kinds of input, each by itself: a program that is wrong for one kind loses a share. The
functions in the plural give the kinds by name, those in the singular draw one case.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from cs336_staff.authoring.cases import draws
from cs336_staff.authoring.cases.spec import CaseSpec, Inputs

Kinds = Mapping[str, st.SearchStrategy[CaseSpec]]
Batch = st.SearchStrategy[Sequence[int]]

# The simplest is 2: a softmax over one key hides most mistakes.
sizes = st.sampled_from((2, 3, 4, 5, 1))
few = st.sampled_from((2, 3, 1))
one_batch_dim = st.lists(few, min_size=1, max_size=1)
LEADING: Mapping[str, Batch] = {
    "no-batch": st.just([]),
    "one-batch-dim": one_batch_dim,
    "two-batch-dims": st.lists(few, min_size=2, max_size=2),
}
# For a property of one entry of a batch, which is taken out.
ONE_MORE: Mapping[str, Batch] = {
    "one-batch-dim": st.lists(st.integers(2, 3), min_size=2, max_size=2),
    "two-batch-dims": st.lists(st.integers(2, 3), min_size=3, max_size=3),
}


def changed(kinds: Kinds, change: Callable[[Inputs], Inputs]) -> Kinds:
    """The same cases with their inputs changed, before the right answer is computed."""

    def of(spec: CaseSpec) -> CaseSpec:
        return replace(spec, draw=lambda generator: change(spec.draw(generator)))

    return {kind: specs.map(of) for kind, specs in kinds.items()}


@st.composite
def softmax(draw: st.DrawFn, dimensions: tuple[int, ...], gradients: tuple[str, ...]) -> CaseSpec:
    shape = [draw(sizes) for _ in range(draw(st.sampled_from(dimensions)))]
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    scale = draw(st.sampled_from((1.0, 10.0) if gradients else (1.0, 30.0, 1000.0)))
    return CaseSpec("softmax", "run_softmax", draws.softmax(*shape, dim=dim, scale=scale), gradients)


def softmaxes(gradients: tuple[str, ...] = ()) -> Kinds:
    kinds = {"one-dimension": (1,), "two-dimensions": (2,), "more-dimensions": (3, 4)}
    return {kind: softmax(dimensions, gradients) for kind, dimensions in kinds.items()}


@st.composite
def attention(
    draw: st.DrawFn, batch: Batch, masks: tuple[str | None, ...], gradients: tuple[str, ...] = ()
) -> CaseSpec:
    drawing = draws.attention(
        *draw(batch),
        queries=draw(sizes),
        keys=draw(sizes),
        d_k=draw(sizes),
        d_v=draw(sizes),
        mask=draw(st.sampled_from(masks)),
    )
    return CaseSpec("attention", "run_scaled_dot_product_attention", drawing, gradients)


def attentions(
    masks: tuple[str, ...] = ("causal", "random", "full"),
    leading: Mapping[str, Batch] = LEADING,
    gradients: tuple[str, ...] = (),
) -> Kinds:
    return {kind: attention(batch, masks, gradients) for kind, batch in leading.items()}


def attentions_without_a_mask(gradients: tuple[str, ...] = ()) -> Kinds:
    return {"no-mask": attention(one_batch_dim, (None,), gradients)}


@st.composite
def linear(draw: st.DrawFn, batch: Batch) -> CaseSpec:
    return CaseSpec("linear", "run_linear", draws.linear(*draw(batch), d_in=draw(sizes), d_out=draw(sizes)))


def linears() -> Kinds:
    return {kind: linear(batch) for kind, batch in LEADING.items()}


@st.composite
def rope(draw: st.DrawFn, batch: Batch, positions: tuple[str, ...]) -> CaseSpec:
    drawing = draws.rope(
        *draw(batch),
        positions=draw(st.sampled_from(positions)),
        sequence=draw(sizes),
        d_k=2 * draw(sizes),
        theta=draw(st.sampled_from((10000.0, 100.0))),
    )
    return CaseSpec("rope", "run_rope", drawing)


SHARED = ("permuted", "spaced", "offset", "in order")  # positions that are the same for all sequences


def ropes() -> Kinds:
    kinds = {kind: rope(batch, SHARED) for kind, batch in LEADING.items()}
    return {**kinds, "positions-per-batch": rope(one_batch_dim, ("per batch",))}


@st.composite
def multihead(draw: st.DrawFn, batch: Batch, heads: tuple[int, ...] = (2, 3, 4)) -> CaseSpec:
    """d_head is even: that an odd one will do without RoPE is the business of one stored case."""
    num_heads = draw(st.sampled_from(heads))
    d_model = 2 * num_heads * draw(st.integers(1, 3))
    sequence = draw(st.integers(2, 5))
    drawing = draws.multihead(*draw(batch), sequence=sequence, d_model=d_model, num_heads=num_heads)
    return CaseSpec("multihead", "run_multihead_self_attention", drawing)


def multiheads() -> Kinds:
    return {**{kind: multihead(batch) for kind, batch in LEADING.items()}, "one-head": multihead(one_batch_dim, (1,))}


@st.composite
def multihead_with_rope(draw: st.DrawFn, batch: Batch, positions: tuple[str, ...]) -> CaseSpec:
    heads = draw(st.sampled_from((2, 3, 4, 1)))
    drawing = draws.multihead(
        *draw(batch),
        positions=draw(st.sampled_from(positions)),
        sequence=draw(sizes),
        d_model=2 * heads * draw(st.integers(1, 3)),
        num_heads=heads,
    )
    return CaseSpec("multihead-rope", "run_multihead_self_attention_with_rope", drawing)


def multiheads_with_rope() -> Kinds:
    kinds = {kind: multihead_with_rope(batch, SHARED) for kind, batch in LEADING.items()}
    return {
        **kinds,
        "positions-per-batch": multihead_with_rope(one_batch_dim, ("per batch",)),
        "positions-not-given": multihead_with_rope(one_batch_dim, ("not given",)),
    }


@st.composite
def attention_module(draw: st.DrawFn, batch: Batch, masks: tuple[str | None, ...]) -> CaseSpec:
    """In evaluation, or with nothing to drop: which weights are dropped differs from program to program."""
    dropout, training = draw(st.sampled_from(((0.0, True), (0.5, False))))
    drawing = draws.attention_module(
        *draw(batch),
        queries=draw(sizes),
        keys=draw(sizes),
        d_k=draw(sizes),
        d_v=draw(sizes),
        mask=draw(st.sampled_from(masks)),
        dropout=dropout,
        training=training,
    )
    return CaseSpec("attention_module", "run_scaled_dot_product_attention_module", drawing)


def attention_modules() -> Kinds:
    kinds = {kind: attention_module(batch, ("causal", "random", "full")) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": attention_module(one_batch_dim, (None,))}


@st.composite
def multihead_attention(draw: st.DrawFn, batch: Batch, masks: tuple[str | None, ...]) -> CaseSpec:
    heads = draw(st.sampled_from((2, 3, 4, 1)))
    drawing = draws.multihead_attention(
        *draw(batch),
        queries=draw(sizes),
        keys=draw(sizes),
        d_model=heads * draw(sizes),
        num_heads=heads,
        mask=draw(st.sampled_from(masks)),
    )
    return CaseSpec("multihead_attention", "run_multihead_attention", drawing)


def multihead_attentions() -> Kinds:
    masks = ("padding", "full", "same for all", "per head")
    kinds = {kind: multihead_attention(batch, masks) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": multihead_attention(one_batch_dim, (None,))}


@st.composite
def blockwise(draw: st.DrawFn, batch: Batch, masks: tuple[str | None, ...]) -> CaseSpec:
    drawing = draws.blockwise(
        *draw(batch),
        queries=draw(sizes),
        keys=draw(sizes),
        d_k=draw(sizes),
        d_v=draw(sizes),
        block_size=draw(st.sampled_from((2, 1, 3, 100, None))),
        mask=draw(st.sampled_from(masks)),
        scale=draw(st.sampled_from((1.0, 100.0))),
    )
    return CaseSpec("blockwise", "run_blockwise_attention", drawing)


def blockwises() -> Kinds:
    kinds = {kind: blockwise(batch, ("causal", "random", "full")) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": blockwise(one_batch_dim, (None,))}
