"""Making what a submission says fit to be printed."""

import sysconfig

# Where Python and the packages lie on this machine, which is not students' business.
PLACES = [f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib", "stdlib")]


def printable(text: str) -> str:
    """`text` without what could command a terminal, reverse the direction of writing, or fail to encode."""
    if text.replace("\n", "").isprintable():  # as nearly all is, and to look at each letter takes longer
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def hide_places(text: str) -> str:
    """`text` with `torch/functional.py` where a warning or an ImportError names the whole path."""
    for place in PLACES:
        text = text.replace(place, "")
    return text
