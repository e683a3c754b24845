"""Make ready to grade. This module does without torch: the sandbox imports it at the same time as this process."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cs336_staff.sandbox.confinement import Layer, Sandbox, start

if TYPE_CHECKING:
    from cs336_staff.grading.suite import GradedSuite


@contextmanager
def ready(
    root: Path, layer: Layer | Literal["auto"] = "auto", only: str | None = None
) -> Iterator[tuple["GradedSuite", Sandbox]]:
    """The suite, loaded while the sandbox starts: each takes seconds.

    Args:
        root: the folder of the assignment.
        layer: of the sandbox.
        only: as in `load_graded_suite`.

    Raises:
        SuiteError, SandboxError: one of them cannot be had.
    """
    with ExitStack() as stack:
        stack.callback(gc.unfreeze)
        with ThreadPoolExecutor(1) as beside:  # it ends here: threads do not survive the fork of each submission
            starting = beside.submit(lambda: stack.enter_context(start(layer)))
            gc.disable()  # all of this stays, and looking for garbage in it would take half a second
            try:
                from cs336_staff.grading.suite import load_graded_suite

                suite = load_graded_suite(root, only)
            finally:
                gc.freeze()
                gc.enable()
        yield suite, starting.result()
