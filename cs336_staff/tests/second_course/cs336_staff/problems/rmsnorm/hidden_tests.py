import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.problems.rmsnorm import KINDS


@pytest.mark.cases("rmsnorm/*")
def test_hidden_rmsnorm(case):
    case.check_to_the_last_digit(adapters.run_rmsnorm(**case.inputs))


@drawn(KINDS)
def test_rmsnorm_of_any_shape(case):
    case.check(adapters.run_rmsnorm(**case.inputs))
