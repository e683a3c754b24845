"""Cases that are drawn from the secret of the release, the same ones for every submission."""

import functools
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_staff.authoring.stored_cases import make_case
from cs336_staff.hidden.release import Release, load_release
from cs336_staff.hidden.strategies import Draw, Kinds

# Of each kind. With twice as many the properties catch the same known mistakes, and a submission takes longer.
EXAMPLES = 3


class Simplest(Random):
    """It chooses the first of everything."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


class DrawnCases:
    """`EXAMPLES` cases of one kind; they are drawn and answered once, before any submission is looked at."""

    def __init__(self, draw: Draw, release: Release) -> None:
        self.draw, self.release = draw, release
        self.seed = release.seed("drawn")

    @functools.cache  # noqa: B019  (as long-lived as the suite)
    def examples(self) -> Sequence[Case]:
        """The cases, the smallest first."""
        random = Random(self.seed)  # noqa: S311  (who has no seed cannot see what comes of it either)
        # One of them surely has none of the sizes at which mistakes hide.
        randoms = [Simplest(self.seed), *[random] * (EXAMPLES - 1)]
        cases = [make_case(self.draw(each), self.release.seed(f"drawn {random.getrandbits(32)}")) for each in randoms]
        return sorted(cases, key=_elements)


def drawn(*kinds: Kinds) -> pytest.MarkDecorator:
    """Run the test on cases of each kind, drawn from the secret of the release: each is a test of its own."""
    release = load_release()
    return pytest.mark.cases({kind: DrawnCases(draw, release) for each in kinds for kind, draw in each.items()})


def _elements(case: Case) -> int:
    return sum(value.numel() for value in case.inputs.values() if isinstance(value, Tensor))
