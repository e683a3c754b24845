"""Repeat public tests on other cases."""

import runpy
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

from whichline.engine.assignment import get_root
from whichline_grader.hidden.drawn import drawn
from whichline_grader.hidden.kinds import Kinds


def public_tests(file: str) -> SimpleNamespace:
    """Run a file of public tests anew, so that its functions call the present `adapters`; return its names."""
    return SimpleNamespace(**runpy.run_path(str(get_root() / "tests" / file)))


def again(test: Callable[..., None], *kinds: Kinds) -> Callable[..., None]:
    """Repeat a public test on drawn cases of each kind; without kinds, on the hidden cases named like its own."""

    @wraps(test)
    def repeated(case: Any) -> None:
        test(case)

    return drawn(*kinds)(repeated) if kinds else repeated
