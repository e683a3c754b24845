"""The result of the lab's functions: it shows itself in a terminal and in a notebook, and saves itself."""

import base64
import html
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table

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
        _write_figure(figure, file, "png")
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
                shown = _write_figure(self.draw(), path, path.suffix.lower().removeprefix("."))
                if not shown:
                    click.echo("Some signs are in no font that the figure has: a page, -o page.html, shows them.")
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


def _write_figure(figure: "Figure", file: Path | io.BytesIO, kind: str) -> bool:
    """Write the figure; the answer is whether it can show all of the text."""
    from matplotlib import rc_context

    # Text of an SVG stays text: small, and every script in the reader's own font. The same picture, the same bytes.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cs336"}), catch_warnings(record=True) as caught:
        figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata={"Date": None} if kind == "svg" else None)
    return kind == "svg" or not any("Glyph" in str(warning.message) for warning in caught)


def make_table(columns: Iterable[str], rows: Iterable[Iterable[str]], title: str | None = None) -> Table:
    """A table of text, whose columns are as narrow as can be, with numbers below each other."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, title=title, title_justify="left", collapse_padding=True)
    for column in columns:
        table.add_column(column, justify="right" if table.columns else "left", vertical="bottom")
    for row in rows:
        table.add_row(*row)
    return table
