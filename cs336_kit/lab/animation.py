"""How the attention in one text changes while a classifier learns, as an animated GIF."""

import io
from collections.abc import Sequence
from pathlib import Path

from jaxtyping import Float
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from cs336_kit.lab.training import Progress

MILLISECONDS = 200
LAST_MILLISECONDS = 3000
DOTS_PER_INCH = 80
COLOURS = 256


# How things stood after an epoch, and the weights then: (head, query, key).
Frame = tuple[Progress, Float[Tensor, "head queries keys"]]


def write_animation(path: Path, words: Sequence[str], frames: Sequence[Frame]) -> None:
    """Write one picture for each frame, with every head side by side; all share one scale, from 0 to 1."""
    drawn = [_drawn(words, *frame) for frame in frames]
    palette = drawn[-1].quantize(COLOURS)  # one for all, so that nothing flickers
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in drawn]
    durations = [MILLISECONDS] * len(others) + [LAST_MILLISECONDS]
    first.save(path, save_all=True, append_images=others, duration=durations, loop=0)


def _drawn(words: Sequence[str], progress: Progress, by_head: Float[Tensor, "head queries keys"]) -> Image.Image:
    heads = len(by_head)
    side = max(3.2, 0.3 * len(words))
    figure = Figure(figsize=(heads * side + 2.2, side + 1.6), layout="constrained", dpi=DOTS_PER_INCH)
    grid = figure.subplots(1, heads, sharey=True, squeeze=False)[0]
    places = range(len(words))
    for head, (axes, weights) in enumerate(zip(grid, by_head, strict=True)):
        axes.imshow(weights.numpy(), vmin=0.0, vmax=1.0, cmap="Blues")
        axes.set(title=f"head {head}", xlabel="key")
        axes.set_xticks(places, words, rotation=90, parse_math=False)
        axes.set_yticks(places, words, parse_math=False)
    grid[0].set_ylabel("query")
    figure.colorbar(grid[0].images[0], ax=list(grid), label="weight", shrink=0.8)
    figure.suptitle(f"epoch {progress.epoch:2}: {progress.accuracy:4.0%} of the held-out texts right")
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return Image.open(file).convert("RGB")
