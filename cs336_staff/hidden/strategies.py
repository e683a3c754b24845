"""Strategies for the property tests: specs of small cases.

A property is asked of several kinds of input, each by itself: a program that is wrong for one kind loses a share. The
functions in the plural give the kinds by name, those in the singular draw one case.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from cs336_staff.authoring.cases import draws
from cs336_staff.authoring.cases.spec import CaseSpec, Inputs

Draw = Callable[[Random], CaseSpec]
Kinds = Mapping[str, Draw]
Batch = Callable[[Random], Sequence[int]]

# A softmax over one key hides most mistakes; no more than one of a kind's cases has one.
SIZES = (1, 2, 3, 4, 5)
FEW = (1, 2, 3)


def size(random: Random) -> int:
    return random.choice(SIZES)


def batch_dims(number: int, sizes: Sequence[int] = FEW) -> Batch:
    return lambda random: [random.choice(sizes) for _ in range(number)]


one_batch_dim = batch_dims(1)
LEADING: Mapping[str, Batch] = {
    "no-batch": batch_dims(0),
    "one-batch-dim": one_batch_dim,
    "two-batch-dims": batch_dims(2),
}
# For a property of one entry of a batch, which is taken out.
ONE_MORE: Mapping[str, Batch] = {
    "one-batch-dim": batch_dims(2, (2, 3)),
    "two-batch-dims": batch_dims(3, (2, 3)),
}


def changed(kinds: Kinds, change: Callable[[Inputs], Inputs]) -> Kinds:
    """The same cases with their inputs changed, before the right answer is computed."""

    def of(draw: Draw, random: Random) -> CaseSpec:
        spec = draw(random)
        return replace(spec, draw=lambda generator: change(spec.draw(generator)))

    return {kind: partial(of, draw) for kind, draw in kinds.items()}


def softmax(dimensions: tuple[int, ...], gradients: tuple[str, ...], random: Random) -> CaseSpec:
    shape = [size(random) for _ in range(random.choice(dimensions))]
    dim = random.choice(range(-len(shape), len(shape)))
    scale = random.choice((1.0, 10.0, 100.0) if gradients else (1.0, 30.0, 1000.0))
    return CaseSpec("softmax", "run_softmax", draws.softmax(*shape, dim=dim, scale=scale), gradients)


def softmaxes(gradients: tuple[str, ...] = ()) -> Kinds:
    kinds = {"one-dimension": (1,), "two-dimensions": (2,), "more-dimensions": (3, 4)}
    return {kind: partial(softmax, dimensions, gradients) for kind, dimensions in kinds.items()}


def attention(batch: Batch, masks: tuple[str | None, ...], gradients: tuple[str, ...], random: Random) -> CaseSpec:
    drawing = draws.attention(
        *batch(random),
        queries=size(random),
        keys=size(random),
        d_k=size(random),
        d_v=size(random),
        mask=random.choice(masks),
    )
    return CaseSpec("attention", "run_scaled_dot_product_attention", drawing, gradients)


def attentions(
    masks: tuple[str, ...] = ("causal", "random", "full"),
    leading: Mapping[str, Batch] = LEADING,
    gradients: tuple[str, ...] = (),
) -> Kinds:
    return {kind: partial(attention, batch, masks, gradients) for kind, batch in leading.items()}


def attentions_without_a_mask(gradients: tuple[str, ...] = ()) -> Kinds:
    return {"no-mask": partial(attention, one_batch_dim, (None,), gradients)}


def linear(batch: Batch, random: Random) -> CaseSpec:
    return CaseSpec("linear", "run_linear", draws.linear(*batch(random), d_in=size(random), d_out=size(random)))


def linears() -> Kinds:
    return {kind: partial(linear, batch) for kind, batch in LEADING.items()}


def rope(batch: Batch, positions: tuple[str, ...], random: Random) -> CaseSpec:
    drawing = draws.rope(
        *batch(random),
        positions=random.choice(positions),
        sequence=size(random),
        d_k=2 * size(random),
        theta=random.choice((10000.0, 100.0)),
    )
    return CaseSpec("rope", "run_rope", drawing)


SHARED = ("permuted", "spaced", "offset", "in order")  # positions that are the same for all sequences


def ropes() -> Kinds:
    kinds = {kind: partial(rope, batch, SHARED) for kind, batch in LEADING.items()}
    return {**kinds, "positions-per-batch": partial(rope, one_batch_dim, ("per batch",))}


def multihead(batch: Batch, heads: tuple[int, ...], random: Random) -> CaseSpec:
    """d_head is even: that an odd one will do without RoPE is the business of one stored case."""
    num_heads = random.choice(heads)
    d_model = 2 * num_heads * random.choice((1, 2, 3))
    sequence = random.choice((2, 3, 4, 5))
    drawing = draws.multihead(*batch(random), sequence=sequence, d_model=d_model, num_heads=num_heads)
    return CaseSpec("multihead", "run_multihead_self_attention", drawing)


def multiheads() -> Kinds:
    return {
        **{kind: partial(multihead, batch, (2, 3, 4)) for kind, batch in LEADING.items()},
        "one-head": partial(multihead, one_batch_dim, (1,)),
    }


def multihead_with_rope(batch: Batch, positions: tuple[str, ...], random: Random) -> CaseSpec:
    heads = random.choice((2, 3, 4, 1))
    drawing = draws.multihead(
        *batch(random),
        positions=random.choice(positions),
        sequence=size(random),
        d_model=2 * heads * random.choice((1, 2, 3)),
        num_heads=heads,
    )
    return CaseSpec("multihead-rope", "run_multihead_self_attention_with_rope", drawing)


def multiheads_with_rope() -> Kinds:
    kinds = {kind: partial(multihead_with_rope, batch, SHARED) for kind, batch in LEADING.items()}
    return {
        **kinds,
        "positions-per-batch": partial(multihead_with_rope, one_batch_dim, ("per batch",)),
        "positions-not-given": partial(multihead_with_rope, one_batch_dim, ("not given",)),
    }


def attention_module(batch: Batch, masks: tuple[str | None, ...], random: Random) -> CaseSpec:
    """In evaluation, or with nothing to drop: which weights are dropped differs from program to program."""
    dropout, training = random.choice(((0.0, True), (0.5, False)))
    drawing = draws.attention_module(
        *batch(random),
        queries=size(random),
        keys=size(random),
        d_k=size(random),
        d_v=size(random),
        mask=random.choice(masks),
        dropout=dropout,
        training=training,
    )
    return CaseSpec("attention_module", "run_scaled_dot_product_attention_module", drawing)


def attention_modules() -> Kinds:
    kinds = {kind: partial(attention_module, batch, ("causal", "random", "full")) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": partial(attention_module, one_batch_dim, (None,))}


def multihead_attention(batch: Batch, masks: tuple[str | None, ...], random: Random) -> CaseSpec:
    heads = random.choice((2, 3, 4, 1))
    drawing = draws.multihead_attention(
        *batch(random),
        queries=size(random),
        keys=size(random),
        d_model=heads * size(random),
        num_heads=heads,
        mask=random.choice(masks),
    )
    return CaseSpec("multihead_attention", "run_multihead_attention", drawing)


def multihead_attentions() -> Kinds:
    masks = ("padding", "full", "same for all", "per head")
    kinds = {kind: partial(multihead_attention, batch, masks) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": partial(multihead_attention, one_batch_dim, (None,))}


def blockwise(batch: Batch, masks: tuple[str | None, ...], random: Random) -> CaseSpec:
    drawing = draws.blockwise(
        *batch(random),
        queries=size(random),
        keys=size(random),
        d_k=size(random),
        d_v=size(random),
        block_size=random.choice((2, 1, 3, 100, None)),
        mask=random.choice(masks),
        scale=random.choice((1.0, 100.0)),
    )
    return CaseSpec("blockwise", "run_blockwise_attention", drawing)


def blockwises() -> Kinds:
    kinds = {kind: partial(blockwise, batch, ("causal", "random", "full")) for kind, batch in LEADING.items()}
    return {**kinds, "no-mask": partial(blockwise, one_batch_dim, (None,))}
