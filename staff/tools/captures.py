"""The pictures in the README and the docs: what the commands print, in colour, as SVG.

`uv run python -m staff.tools.captures` draws them; with `--check` it fails when a command no longer prints what
its picture shows.
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

from staff.tools.student import FUNCTIONAL, ROOT, Student
from staff.tools.terminal import ENDED, Terminal, watching
from whichline.engine.assignment import load_problems

PICTURES = ROOT / "docs" / "pictures"
PROBLEM = "scaled_dot_product_attention"


def wrong_answer(student: Student) -> tuple[str, str]:
    """Attention divided by d_k, not by its root."""
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    return _run_pytest(student, "-x")


def board(student: Student) -> tuple[str, str]:
    """The same mistake, with multi-head attention and what comes after it still to be written."""
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    for problem in dropwhile(lambda each: each.id != "multihead_self_attention", load_problems(ROOT).values()):
        for file in problem.files:
            student.unwrite(file)
    return "uv run cs336 check", student.run("whichline", "check").stdout


def two_mistakes(student: Student) -> tuple[str, str]:
    """Attention over a width that is one too large, with a finite score for hidden keys."""
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "math.sqrt(Q.shape[-1] + 1)")
    student.replace(FUNCTIONAL, "torch.where(mask, scores, -math.inf)", "torch.where(mask, scores, -7.0)")
    return _run_pytest(student)


def _run_pytest(student: Student, *options: str) -> tuple[str, str]:
    options = (*options, "-k", "test_scaled_dot_product_attention")
    return f"uv run pytest {' '.join(options)}", student.run("pytest", "-q", "--color=yes", *options).stdout


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
    """The weights of two heads under a causal mask."""
    command = "show --case attention/3d-causal"
    return f"uv run cs336 {command}", student.run("whichline", *command.split()).stdout


def debug(student: Student) -> tuple[str, str]:
    """An attention of its own, one line of it wrong: the solution's lines are not for students."""
    attention = """\


def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.mT / Q.shape[-1]
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)
    return weights @ V
"""
    path = student.folder / FUNCTIONAL
    path.write_text(path.read_text() + attention)
    command = "debug --case attention/3d-causal"
    return f"uv run cs336 {command}", student.run("whichline", *command.split()).stdout


def drawn(command: str, output: str) -> str:
    """The SVG of a terminal that shows a command and what it printed."""
    console = Console(width=80, record=True, file=StringIO())
    console.print(Text.from_ansi(f"\x1b[1m$ {command}\x1b[0m\n{output.rstrip()}"), end="\n\n")  # the last line is cut
    svg = console.export_svg(title=" ", theme=MONOKAI, unique_id="terminal")
    # It would fetch its font from a network; a reader's monospace font will do.
    return re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)


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
            sys.exit(f"{path} is not what the command prints now; draw it again: python -m staff.tools.captures")


def _wordings(svg: str) -> str:
    """Without figures: how long pytest took differs from run to run, and the last digits from machine to machine."""
    return re.sub(r"[\d.,]+", "", svg)


if __name__ == "__main__":
    main()
