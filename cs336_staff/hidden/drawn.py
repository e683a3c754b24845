"""Cases that hypothesis draws from the secret of the release, the same ones for every submission."""

import functools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor

from cs336_kit.engine.case import Case
from cs336_staff.authoring.cases.spec import CaseSpec
from cs336_staff.authoring.stored_cases import make_case
from cs336_staff.hidden.release import Release, load_release
from cs336_staff.hidden.strategies import Kinds

# Of each kind. With twice as many the properties catch the same known mistakes, and a submission takes longer.
EXAMPLES = 3


class DrawnCases:
    """`EXAMPLES` cases of one kind; they are drawn and answered once, before any submission is looked at."""

    def __init__(self, specs: st.SearchStrategy[CaseSpec], release: Release) -> None:
        self.strategy = st.builds(
            lambda spec, number: make_case(spec, release.seed(f"drawn {number}")), specs, st.integers(0, 2**32 - 1)
        )
        self.seed = release.seed("drawn")

    @functools.cache  # noqa: B019  (as long-lived as the suite)
    def examples(self) -> Sequence[Case]:
        """The cases, the smallest first."""
        found: list[Case] = []
        repeatable = settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=(HealthCheck.too_slow,),
        )

        def shown(case: Case) -> None:
            found.append(case)

        seed(self.seed)(repeatable(given(self.strategy)(shown)))()
        return sorted(found, key=_elements)


def drawn(*kinds: Kinds) -> pytest.MarkDecorator:
    """Run the test on cases of each kind, drawn from the secret of the release: each is a test of its own."""
    release = load_release()
    return pytest.mark.cases({kind: DrawnCases(specs, release) for each in kinds for kind, specs in each.items()})


def _elements(case: Case) -> int:
    return sum(value.numel() for value in case.inputs.values() if isinstance(value, Tensor))
