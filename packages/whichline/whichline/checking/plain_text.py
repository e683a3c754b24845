"""Print to a terminal or a file whose encoding lacks some characters."""

import codecs
import io
import sys

SPELT = {
    "√": "sqrt", "Σ": "sum", "∞": "inf", "σ": "sigma", "ᵀ": "^T", "₁": "1", "₂": "2",
    "×": "x", "·": "*", "∘": "*", "−": "-", "–": "-", "±": "+-", "≈": "~", "≤": "<=", "≥": ">=",
    "→": "->", "…": "...", "█": "#", "▓": "#", "▒": "+", "░": ".",
}  # fmt: skip


def print_everywhere() -> None:
    """Make standard output and error spell the characters that their encoding lacks: √ as sqrt."""
    codecs.register_error("spell", _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spell")


def _spell(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(SPELT.get(character, "?") for character in error.object[error.start : error.end]), error.end
