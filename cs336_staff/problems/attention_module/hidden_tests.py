"""Attention as a module, hidden."""

from cs336_staff.hidden.public import again, public_tests
from cs336_staff.problems.attention_module.cases import kinds

public = public_tests("test_6_attention_module.py")


test_hidden_attention_module = again(public.test_attention_module)
test_hidden_attention_module_dropout = again(public.test_attention_module_dropout)
test_attention_module_of_any_shape = again(public.test_attention_module, kinds())
