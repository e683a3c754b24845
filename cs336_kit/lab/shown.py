"""The result of the lab's functions: it shows itself in a terminal and in a notebook, and saves itself."""

import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from cs336_kit.lab.bad_input import BadInput, check_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES, TEXTS = (".png", ".svg"), (".html", ".txt")
COLUMNS = 80
FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(repr=False)
class Shown:
    """Something to be looked at.

    Args:
        parts: the text, as rich prints it.
        draw: makes the figure, if there is one.
        write_page: writes a page of its own, in place of one with the text and the figure.
        text_in_notebooks: whether a notebook shows the text beside the figure.
    """

    parts: Sequence[RenderableType]
    draw: "Callable[[], Figure] | None" = None
    write_page: Callable[[Path], None] | None = None
    text_in_notebooks: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts

    def __repr__(self) -> str:
        return self._recorded().export_text().rstrip()

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        text = ""
        if self.text_in_notebooks or self.draw is None:
            code_format = f'<pre style="font-family: {html.escape(FONT)}; line-height: 1.3">{{code}}</pre>'
            text = self._recorded().export_html(inline_styles=True, code_format=code_format)
        if self.draw is None:
            return text
        from cs336_kit.lab.figure import as_image

        return text + as_image(self.draw())

    def save(self, path: Path | str) -> None:
        """Write the figure (.png, .svg), a page (.html) or the text (.txt), as the suffix says.

        Raises:
            BadInput: the suffix is another one, or the file cannot be written.
        """
        path = Path(path)
        check_output(path, [*(FIGURES if self.draw else ()), *TEXTS])
        kind = path.suffix.lower()
        if kind in FIGURES:
            from cs336_kit.lab.figure import save_figure

            assert self.draw is not None
            for line in save_figure(self.draw(), path):
                print(line)
        elif kind == ".html" and self.write_page:
            self.write_page(path)
        else:
            page = f'<!doctype html>\n<meta charset="utf-8">\n<title>Attention</title>\n{self._repr_html_()}\n'
            try:
                path.write_text(page if kind == ".html" else f"{self!r}\n", encoding="utf-8")
            except OSError as error:
                raise BadInput(f"{path} cannot be written: {error.strerror}") from None

    def _recorded(self) -> Console:
        """A console on which the text has been printed, in colour and for nobody to see."""
        console = Console(
            width=COLUMNS,
            record=True,
            file=io.StringIO(),
            highlight=False,
            color_system="truecolor",
            force_terminal=True,
        )
        console.print(self)
        return console
