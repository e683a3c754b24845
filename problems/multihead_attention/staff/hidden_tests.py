"""Attention between two sequences, hidden."""

from problems.multihead_attention.staff.cases import kinds
from whichline_grader.author import again, public_tests

public = public_tests("test_7_multihead_attention.py")


test_hidden_multihead_attention = again(public.test_multihead_attention)
test_multihead_attention_of_any_shape = again(public.test_multihead_attention, kinds())
