"""Attention as a module, hidden."""

import pytest

import adapters
from cs336_staff.hidden.drawn import drawn
from cs336_staff.hidden.strategies import attention_modules


@pytest.mark.cases("attention_module/*")
def test_hidden_attention_module(case):
    case.check(adapters.run_scaled_dot_product_attention_module(**case.inputs))


@pytest.mark.cases("attention_module-dropout/*")
def test_hidden_attention_module_dropout(case):
    case.check(adapters.run_scaled_dot_product_attention_module(**case.inputs))


@drawn(attention_modules())
def test_attention_module_of_any_shape(case):
    case.check(adapters.run_scaled_dot_product_attention_module(**case.inputs))
