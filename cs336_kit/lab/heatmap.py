"""A heat map of attention: maps on one scale of colours, which show themselves in a terminal and in a notebook."""

import io
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jaxtyping import Bool, Float
from matplotlib import colormaps
from matplotlib.colors import Colormap, Normalize
from rich.console import Console, ConsoleOptions, RenderResult
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput

NOT_A_NUMBER = "#d95f02"


@dataclass(frozen=True, repr=False)
class Heatmap:
    """Maps of weights, or of scores, side by side; `heatmap` in notebook.py makes one, and says what each part is."""

    maps: Float[Tensor, "maps queries keys"]
    hidden: Bool[Tensor, "maps queries keys"]
    queries: list[str]
    keys: list[str]
    titles: list[str]
    values: bool
    vmax: float
    scores: bool

    @cached_property
    def colours(self) -> Colormap:
        """White is a weight of 0; a score of 0 is white, too, between red and blue."""
        return colormaps["RdBu" if self.scores else "Blues"].with_extremes(bad=NOT_A_NUMBER)

    @cached_property
    def scale(self) -> Normalize:
        """From a number to its place among the colours, from 0 to 1."""
        return Normalize(-self.vmax if self.scores else 0.0, self.vmax, clip=True)

    def paint(self, x: float) -> tuple[tuple[float, float, float], str]:
        """The colour of a number, and the ink, black or white, that can be read on it."""
        red, green, blue, _ = self.colours(math.nan if math.isnan(x) else float(self.scale(x)))
        light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.179
        return (red, green, blue), "#000000" if light else "#ffffff"

    def write(self, x: float) -> str:
        """The number in a cell: a percentage, or a score."""
        if not math.isfinite(x):
            return "NaN" if math.isnan(x) else str(x)
        return f"{x:z.1f}" if self.scores else f"{100 * x:z.0f}"

    def save(self, path: Path | str) -> None:
        """Write the figure in the format that the suffix names, such as .png or .svg; BadInput if that cannot be."""
        from cs336_kit.lab.figure import draw_figure

        try:
            draw_figure(self).savefig(path)
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None

    def _repr_png_(self) -> bytes:
        from cs336_kit.lab.figure import draw_figure

        file = io.BytesIO()
        draw_figure(self).savefig(file, format="png")
        return file.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from cs336_kit.lab.terminal import tabulate

        yield from tabulate(self, options.max_width, console.color_system in ("256", "truecolor"))

    def __repr__(self) -> str:
        # In a notebook, a console left to itself would display what is to be text.
        console = Console(width=80, file=io.StringIO(), color_system=None, force_jupyter=False)
        with console.capture() as text:
            console.print(self)
        return text.get().rstrip()
