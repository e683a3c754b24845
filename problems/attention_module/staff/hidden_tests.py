"""Attention as a module, hidden."""

from problems.attention_module.staff.cases import kinds
from whichline_grader.author import again, public_tests

public = public_tests("test_6_attention_module.py")


test_hidden_attention_module = again(public.test_attention_module)
test_hidden_attention_module_dropout = again(public.test_attention_module_dropout)
test_attention_module_of_any_shape = again(public.test_attention_module, kinds())
