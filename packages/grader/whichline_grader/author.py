"""The public names for authors of problems; they stay until a major version."""

from whichline_grader.authoring.cases import CaseSpec, Inputs, specs
from whichline_grader.authoring.spec import Figure, Matrix, ProblemSpec
from whichline_grader.hidden.drawn import again, drawn, public_tests
from whichline_grader.hidden.kinds import LEADING, Batch, Kinds, Spread, change_inputs, draw_one_axis, draw_size
from whichline_grader.hidden.properties import assert_near, assert_no_side_effects, assert_right

__all__ = [
    "LEADING",
    "Batch",
    "CaseSpec",
    "Figure",
    "Inputs",
    "Kinds",
    "Matrix",
    "ProblemSpec",
    "Spread",
    "again",
    "assert_near",
    "assert_no_side_effects",
    "assert_right",
    "change_inputs",
    "draw_one_axis",
    "draw_size",
    "drawn",
    "public_tests",
    "specs",
]
