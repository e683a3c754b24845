"""Attention as a module, hidden."""

import pytest

import adapters
from cs336_kit.problems.attention_module.judge import check_dropout
from cs336_staff.hidden.drawn import drawn
from cs336_staff.problems.attention_module.cases import kinds


@pytest.mark.cases("attention_module/*")
def test_hidden_attention_module(case):
    case.check(adapters.run_scaled_dot_product_attention_module(**case.inputs))


@pytest.mark.cases("attention_module-dropout/*")
def test_hidden_attention_module_dropout(case):
    check_dropout(case, adapters.run_scaled_dot_product_attention_module(**case.inputs))


@drawn(kinds())
def test_attention_module_of_any_shape(case):
    case.check(adapters.run_scaled_dot_product_attention_module(**case.inputs))
