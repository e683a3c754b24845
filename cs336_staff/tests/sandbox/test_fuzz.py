"""What is nearly a reply, or nearly an archive, is read or refused."""

from collections.abc import Callable

import pytest

from cs336_staff.tests.sandbox.fuzz import GROWING, TARGETS, Target, fuzz, grow


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_what_is_nearly_right_is_read_or_refused(target: Target) -> None:
    outcomes = fuzz(target, cases=3_400)
    assert min(outcomes["read"], outcomes["refused"]) > 100


@pytest.mark.slow
@pytest.mark.parametrize("read", GROWING, ids=lambda read: read.__name__)
def test_what_is_twice_as_long_takes_no_more_than_twice_as_long(read: Callable[..., object]) -> None:
    assert grow(read) < 5
