"""Making what a submission says fit to be printed."""


def printable(text: str) -> str:
    """`text` without what could command a terminal, reverse the direction of writing, or fail to encode."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
