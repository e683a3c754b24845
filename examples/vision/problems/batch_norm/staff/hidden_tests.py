"""The hidden tests of `batch_norm`."""

from functools import partial

from problems.batch_norm.staff import draw_any
from whichline_grader.hidden.public import again, public_tests

public = public_tests("test_2_batch_norm.py")
kinds = {"training": partial(draw_any, training=True), "evaluation": partial(draw_any, training=False)}

test_hidden_batch_norm = again(public.test_batch_norm)
test_batch_norm_of_any_shape = again(public.test_batch_norm, kinds)
