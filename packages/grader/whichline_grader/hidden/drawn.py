"""Cases drawn from the secret of the release, the same for every submission, and public tests repeated on them."""

import functools
import runpy
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from whichline.engine.assignment import get_root
from whichline.engine.case import Case
from whichline_grader.authoring.stored_cases import make_case
from whichline_grader.hidden.kinds import Draw, Kinds, Spread
from whichline_grader.hidden.release import Release, load_release

# Cases of each kind. Twice as many catch the same known mistakes and take longer.
EXAMPLES = 3


class DrawnCases:
    """`EXAMPLES` cases of one kind. They are drawn and computed once, before any submission is read."""

    def __init__(self, draw: Draw, release: Release, kind: str) -> None:
        self.draw, self.release = draw, release
        self.seed = release.seed(f"drawn {kind}")

    @functools.cache  # noqa: B019  (as long-lived as the suite)
    def examples(self) -> Sequence[Case]:
        """The cases, the smallest first."""
        specs = [self.draw(Spread(self.seed, turn)) for turn in range(EXAMPLES)]
        cases = [make_case(spec, self.release.seed(f"{self.seed} {turn}")) for turn, spec in enumerate(specs)]
        return sorted(cases, key=lambda case: sum(x.numel() for x in case.inputs.values() if isinstance(x, Tensor)))


def drawn(*kinds: Kinds) -> pytest.MarkDecorator:
    """Run the test on cases of each kind, drawn from the secret of the release; each kind is a test of its own."""
    release = load_release()
    return pytest.mark.cases({kind: DrawnCases(draw, release, kind) for each in kinds for kind, draw in each.items()})


def public_tests(file: str) -> SimpleNamespace:
    """Run a file of public tests anew, so that its functions call the present `adapters`; return its names."""
    return SimpleNamespace(**runpy.run_path(str(get_root() / "tests" / file)))


def again(test: Callable[..., None], *kinds: Kinds) -> Callable[..., None]:
    """Repeat a public test on drawn cases of each kind; without kinds, on the hidden cases named like its own."""

    @functools.wraps(test)
    def repeated(case: Any) -> None:
        test(case)

    return drawn(*kinds)(repeated) if kinds else repeated
