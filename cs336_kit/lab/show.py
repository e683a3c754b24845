"""Find what `cs336 show` shows: the weights of every head on a text, as a picture to be looked at and saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.picture import Pattern, Picture
from cs336_kit.lab.shown import Shown
from cs336_kit.lab.source import Source, causal_mask
from cs336_kit.lab.student import Student
from cs336_kit.lab.terminal import Heatmaps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_WEIGHTS = 30_000_000


def find_source(classifier: Path | None, model: Path | None) -> Source:
    """Choose where queries and keys come from: a classifier, a model, or the table of words if there is neither."""
    student = Student()
    if model:
        from cs336_kit.lab.huggingface import Model

        return Model(model, student)
    if classifier:
        from cs336_kit.lab.trained import Trained

        return Trained(classifier, student)
    from cs336_kit.lab.words import Words

    return Words(student)


def find_picture(
    source: Source, text: str, masks: Sequence[bool], layers: Sequence[int], head: str | None, values: bool
) -> Picture:
    """The patterns that were asked for: layer by layer, all heads without a mask and then all with one.

    Args:
        source: where queries and keys come from.
        text: what is read.
        masks: for each, whether it is causal.
        layers: counted from 0.
        head: its name, or None for all.
        values: whether a figure has the number in each cell, too.

    Raises:
        BadInput: there is no text, no such layer or head, or too much to be drawn.
    """
    tokens = source.tokens(text)
    if not tokens:
        raise BadInput("the text has no tokens: give at least one word")
    if not all(0 <= layer < source.layers for layer in layers):
        raise BadInput(f"there is no layer {layers[0]}: choose one from 0 to {source.layers - 1}")
    if head is not None and head not in source.heads:
        raise BadInput(f"there is no head {head}: choose one of {', '.join(source.heads)}")
    heads = source.heads if head is None else [head]
    count = len(layers) * len(heads) * len(masks) * len(tokens) ** 2
    if count > MOST_WEIGHTS:
        raise BadInput(
            f"that is {count:,} weights, more than {MOST_WEIGHTS:,}: choose a --layer and a --head, or less text"
        )
    weights = {causal: source.weights(text, causal) for causal in masks}
    later = ~causal_mask(len(tokens))
    patterns = [
        Pattern(
            layer=layer,
            head=name,
            causal=causal,
            title=_title(layer if source.layers > 1 else None, name, causal),
            weights=weights[causal][layer, source.heads.index(name)],
            hidden=later if causal else None,
        )
        for layer in layers
        for causal in masks
        for name in heads
    ]
    return Picture(tokens, tokens, patterns, source.notes(text), values)


def _title(layer: int | None, head: str, causal: bool) -> str:
    parts = [] if layer is None else [f"layer {layer}"]
    parts.append(f"head {head}" if head.isdigit() else head)
    return ", ".join([*parts, "causal"] if causal else parts)


def shown_picture(picture: Picture, mask: str = "none") -> Shown:
    """A picture to be looked at; `mask` is the one that its page shows first."""

    def draw() -> "Figure":
        from cs336_kit.lab.figure import draw_picture

        return draw_picture(picture)

    def write(path: Path) -> None:
        from cs336_kit.lab.page import write_page

        write_page(picture, mask, path)

    return Shown([Heatmaps(picture)], draw, write, text_in_notebooks=False)
