"""The hidden tests of `batch_norm`."""

from problems.batch_norm.staff import draw_any
from whichline_grader.author import again, public_tests

public = public_tests("test_2_batch_norm.py")
kinds = {"training": lambda random: draw_any(random, True), "evaluation": lambda random: draw_any(random, False)}

test_hidden_batch_norm = again(public.test_batch_norm)
test_batch_norm_of_any_shape = again(public.test_batch_norm, kinds)
