import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.problems.swiglu import KINDS


@pytest.mark.cases("swiglu/*")
def test_hidden_swiglu(case):
    case.check_to_the_last_digit(adapters.run_swiglu(**case.inputs))


@drawn(KINDS)
def test_swiglu_of_any_shape(case):
    case.check(adapters.run_swiglu(**case.inputs))
