"""Attention between two sequences, hidden."""

from cs336_staff.hidden.public import again, public_tests
from cs336_staff.problems.multihead_attention.cases import kinds

public = public_tests("test_7_multihead_attention.py")


test_hidden_multihead_attention = again(public.test_multihead_attention)
test_multihead_attention_of_any_shape = again(public.test_multihead_attention, kinds())
