"""The linear layer, hidden."""

from problems.linear.staff.cases import kinds
from whichline_grader.author import again, public_tests

public = public_tests("test_3_linear.py")


test_hidden_linear = again(public.test_linear)
test_hidden_linear_to_the_last_digit = again(public.test_linear_to_the_last_digit)
test_linear_of_any_shape = again(public.test_linear, kinds())
