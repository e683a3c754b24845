"""What is nearly a reply, or nearly an archive, is read or refused; `cs336_staff.tools.fuzz` tries more."""

import pytest

from cs336_staff.tools.fuzz import TARGETS, Target, fuzz


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_what_is_nearly_right_is_read_or_refused(target: Target) -> None:
    outcomes, _ = fuzz(target, cases=3_400)
    assert min(outcomes["read"], outcomes["refused"]) > 100
