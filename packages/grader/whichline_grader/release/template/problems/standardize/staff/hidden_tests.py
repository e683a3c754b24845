"""CHANGE: hidden tests, which repeat public ones on hidden cases, and on cases that are drawn from the secret."""

from problems.standardize.staff import draw_any
from whichline_grader.author import again, public_tests

public = public_tests("test_1_standardize.py")

test_hidden_standardize = again(public.test_standardize)
test_standardize_of_any_shape = again(public.test_standardize, {"matrix": draw_any})
