"""Make the text of a submission safe to print."""

import sysconfig

# The folders of Python and its packages on this machine, which students need not know.
PLACES = [f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib", "stdlib")]


def printable(text: str) -> str:
    """Replace characters that could control a terminal, reverse the direction of text, or fail to encode."""
    if text.replace("\n", "").isprintable():  # the usual case, and much faster than to look at each character
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def hide_paths(text: str) -> str:
    """Shorten the whole path that a warning or an ImportError names to `torch/functional.py`."""
    for place in PLACES:
        text = text.replace(place, "")
    return text
