"""Find the wrong expression in code whose tests fail, in an assignment or in any pytest suite with a reference.

diagnose: run the tests of a plain suite and return its mistakes.
Finding: one mistake, with its position, the difference and the proof.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichline.engine.finding import Finding
    from whichline.plain.process import diagnose

__all__ = ["Finding", "diagnose"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is used, since pytest imports this package wherever it is installed."""
    if name == "Finding":
        from whichline.engine.finding import Finding

        return Finding
    if name == "diagnose":
        from whichline.plain.process import diagnose

        return diagnose
    raise AttributeError(f"module 'whichline' has no attribute '{name}'")
