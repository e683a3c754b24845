"""Public tests, which hidden tests repeat on other cases."""

import runpy
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.kinds import Kinds

TESTS = Path(__file__).parents[2] / "tests"


def public_tests(file: str) -> SimpleNamespace:
    """The functions of a file of public tests. It runs anew, so they call what `adapters` is now."""
    return SimpleNamespace(**runpy.run_path(str(TESTS / file)))


def again(test: Callable[..., None], *kinds: Kinds) -> Callable[..., None]:
    """A public test on drawn cases of each kind; without any, on the hidden cases that are called like its own."""

    @wraps(test)
    def repeated(case: Any) -> None:
        test(case)

    return drawn(*kinds)(repeated) if kinds else repeated
