"""Find the line that is wrong, in any pytest suite with a reference or in an assignment that has its own.

diagnose: run the tests of a plain suite and return what is wrong.
Finding: one thing that is wrong, with its place, the difference and the proof.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichline.engine.finding import Finding
    from whichline.plain.process import diagnose

__all__ = ["Finding", "diagnose"]


def __getattr__(name: str) -> Any:
    """Import what is public when it is asked for: pytest imports this package in every environment that has it."""
    if name == "Finding":
        from whichline.engine.finding import Finding

        return Finding
    if name == "diagnose":
        from whichline.plain.process import diagnose

        return diagnose
    raise AttributeError(f"module 'whichline' has no attribute '{name}'")
