import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.problems.cross_entropy import KINDS


@pytest.mark.cases("cross-entropy/*")
def test_hidden_cross_entropy(case):
    case.check_to_the_last_digit(adapters.run_cross_entropy(**case.inputs))


@drawn(KINDS)
def test_cross_entropy_of_any_size(case):
    case.check(adapters.run_cross_entropy(**case.inputs))
