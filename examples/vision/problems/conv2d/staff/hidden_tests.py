"""The hidden tests of `conv2d`."""

from problems.conv2d.staff import draw_any
from whichline_grader.author import again, public_tests

public = public_tests("test_1_conv2d.py")

test_hidden_conv2d = again(public.test_conv2d)
test_hidden_conv2d_gradients = again(public.test_conv2d_gradients)
test_conv2d_of_any_shape = again(public.test_conv2d, {"any": draw_any})
