"""The result of the lab's functions: it shows itself in a terminal and in a notebook, and saves itself."""

import base64
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings

import click
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from cs336_kit.lab.bad_input import check_output, reject_unwritable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = (".png", ".svg")
COLUMNS = 80
DOTS_PER_INCH = 110
FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(repr=False)
class View:
    """Something to be looked at.

    Args:
        parts: the text, as rich prints it.
        draw: makes the figure, if there is one.
        write_page: writes a page of its own, in place of one with the text and the figure. What has one is a picture:
            a notebook shows its figure without the text.
    """

    parts: Sequence[RenderableType]
    draw: "Callable[[], Figure] | None" = None
    write_page: Callable[[Path], None] | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts

    def __repr__(self) -> str:
        return self._record().export_text().rstrip()

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        text = ""
        if self.write_page is None:
            code_format = f'<pre style="font-family: {html.escape(FONT)}; line-height: 1.3">{{code}}</pre>'
            text = self._record().export_html(inline_styles=True, code_format=code_format)
        if self.draw is None:
            return text
        figure, file = self.draw(), io.BytesIO()
        with catch_warnings(record=True):  # of signs that are in no font
            figure.savefig(file, format="png", dpi=DOTS_PER_INCH)
        data = base64.b64encode(file.getvalue()).decode()
        width = round(figure.get_figwidth() * 72)
        return f'{text}<img style="width: {width}px; max-width: 100%" src="data:image/png;base64,{data}">'

    def save(self, path: Path | str) -> None:
        """Write the figure (.png, .svg), a page (.html) or the text (.txt), as the suffix says.

        Raises:
            BadInput: the suffix is another one, or the file cannot be written.
        """
        path = Path(path)
        check_output(path, [*(FIGURES if self.draw else ()), ".html", ".txt"])
        with reject_unwritable(path):
            if self.draw and path.suffix.lower() in FIGURES:
                _save_figure(self.draw(), path)
            elif path.suffix.lower() == ".txt":
                path.write_text(f"{self!r}\n", encoding="utf-8")
            elif self.write_page:
                self.write_page(path)
            else:
                page = f'<!doctype html>\n<meta charset="utf-8">\n<title>Attention</title>\n{self._repr_html_()}\n'
                path.write_text(page, encoding="utf-8")

    def _record(self) -> Console:
        """A console on which the text has been printed, in colour and for nobody to see."""
        console = Console(
            width=COLUMNS,
            record=True,
            file=io.StringIO(),
            highlight=False,
            color_system="truecolor",
            force_terminal=True,
            force_jupyter=False,  # else it shows in the cell what the View shows there itself
        )
        console.print(self)
        return console


def _save_figure(figure: "Figure", path: Path) -> None:
    """Write the figure, and say so if it cannot show all of the text."""
    from matplotlib import rc_context

    kind = path.suffix.lower().removeprefix(".")
    # Text of an SVG stays text: small, and every script in the reader's own font. The same picture, the same bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cs336"}), catch_warnings(record=True) as caught:
        figure.savefig(path, format=kind, dpi=DOTS_PER_INCH, metadata={"Date": None} if kind == "svg" else None)
    if kind == "png" and any("Glyph" in str(warning.message) for warning in caught):
        click.echo("Some signs of the text are in no font that the figure has: a page, -o page.html, shows them.")
