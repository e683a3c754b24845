"""The pictures in the README and the docs: what the commands print, in colour, as SVG, and what they draw.

`uv run python -m cs336_staff.tools.captures` draws them; with `--check` it fails when a command no longer prints what
its picture shows. What they draw is not compared, as fonts differ between machines.
"""

import os
import re
import sys
import tempfile
from io import StringIO
from itertools import dropwhile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from cs336_kit.engine.assignment import load_problems
from cs336_staff.tools.browser import launched, opened
from cs336_staff.tools.student import ROOT, Student
from cs336_staff.tools.terminal import ENDED, Terminal, watching

PICTURES = ROOT / "docs" / "pictures"
FUNCTIONAL = "cs336_basics/nn/functional.py"
COLUMNS = 80
PROBLEM = "scaled_dot_product_attention"

# rich's own template fetches its font from a network; a reader's monospace font will do.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""  # noqa: E501


def wrong_answer(student: Student) -> tuple[str, str]:
    """Attention divided by d_k, not by its root."""
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    return _first_failure(student)


def board(student: Student) -> tuple[str, str]:
    """The same mistake, with multi-head attention and what comes after it still to be written."""
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    for problem in dropwhile(lambda each: each.id != "multihead_self_attention", load_problems(ROOT).values()):
        for file in problem.files:
            student.unwrite(file)
    return "uv run cs336 check", student.run("cs336_kit", "check").stdout


def two_mistakes(student: Student) -> tuple[str, str]:
    """Attention over a width that is one too large, with a finite score for hidden keys."""
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "math.sqrt(Q.shape[-1] + 1)")
    student.replace(FUNCTIONAL, "torch.where(mask, scores, -math.inf)", "torch.where(mask, scores, -7.0)")
    return _first_failure(student)


def _first_failure(student: Student) -> tuple[str, str]:
    test = "test_scaled_dot_product_attention"
    return f"uv run pytest -x -k {test}", student.run("pytest", "-x", "-q", "--color=yes", "-k", test).stdout


def watch(student: Student) -> tuple[str, str]:
    """A wrong save and a right one; what the screen showed after each, one below the other."""
    with watching(student, PROBLEM, kind="xterm-256color") as terminal:
        student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
        screens = ["(you save attention that divides by d_k)", _screen(terminal)]
        student.replace(FUNCTIONAL, "/ Q.shape[-1]", "/ math.sqrt(Q.shape[-1])")
        screens += ["(you save the root)", _screen(terminal)]
    return f"uv run cs336 check --watch {PROBLEM}", "\x1b[0m\n\n".join(screens)


def _screen(terminal: Terminal) -> str:
    """Return what the terminal shows once a run has ended."""
    terminal.expect(rf"\x1b\[2J\x1b\[H((?:(?!\x1b\[2J).)*{ENDED}.*?q quit)")
    assert isinstance(terminal.match, re.Match)
    return terminal.match.group(1).replace("\r\n", "\n")


def show(student: Student) -> tuple[str, str]:
    """Rhymes and meanings, with and without a mask."""
    command = "show --mask both --head meaning The cat sat on the mat"
    return f"uv run cs336 {command}", student.run("cs336_kit", *command.split()).stdout


def debug(student: Student) -> tuple[str, str]:
    """A softmax that does not handle rows in which everything is hidden."""
    student.replace(FUNCTIONAL, "maximum.masked_fill(maximum == -math.inf, 0.0)", "maximum")
    return "uv run cs336 debug --case attention-nothing/3d", student.run(
        "cs336_kit", "debug", "--case", "attention-nothing/3d"
    ).stdout


def draw_page(path: Path) -> None:
    """The page of the first example, with a word chosen."""
    with tempfile.TemporaryDirectory() as folder:
        Student(Path(folder)).run("cs336_kit", "show", "-o", "page.html")
        url = (Path(folder) / "page.html").as_uri()
        with launched() as browser, opened(browser, url, width=820) as (page, _):
            page.locator("canvas").nth(1).hover(position={"x": 24 * 4.5, "y": 24 * 1.5})
            height = page.evaluate("document.querySelector('.scale').getBoundingClientRect().bottom + 16")
            page.screenshot(path=path, clip={"x": 0, "y": 0, "width": 820, "height": height})


def draw_figures(folder: Path) -> None:
    """Draw what `cs336 flow` and `cs336 train` draw."""
    student = Student(folder)
    student.run("cs336_kit", "flow", "-o", str(PICTURES / "flow.png"))
    student.run("cs336_kit", "train", "--animate", str(PICTURES / "train.gif"))


def drawn(command: str, output: str) -> str:
    """The SVG of a terminal that shows a command and what it printed."""
    console = Console(width=COLUMNS, record=True, file=StringIO())
    console.print(Text.from_ansi(f"\x1b[1m$ {command}\x1b[0m\n{output.rstrip()}"), end="\n\n")  # the last line is cut
    return console.export_svg(title=" ", theme=MONOKAI, code_format=SVG, unique_id="terminal")


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    os.environ |= {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TTY_INTERACTIVE": "0"}  # colours, but no spinner
    for scene in (wrong_answer, two_mistakes, board, watch, show, debug):
        with tempfile.TemporaryDirectory() as folder:
            svg = drawn(*scene(Student(Path(folder))))
        path = PICTURES / f"{scene.__name__.replace('_', '-')}.svg"
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(svg)
        elif _wordings(path.read_text()) != _wordings(svg):
            sys.exit(f"{path} is not what the command prints now; draw it again: python -m cs336_staff.tools.captures")
    if not check:
        draw_page(PICTURES / "show-page.png")
        with tempfile.TemporaryDirectory() as folder:
            draw_figures(Path(folder))


def _wordings(svg: str) -> str:
    """Without figures: how long pytest took differs from run to run, and the last digits from machine to machine."""
    return re.sub(r"[\d.,]+", "", svg)


if __name__ == "__main__":
    main()
