"""Rotary position embedding."""

from problems.rope.staff.cases import HIDDEN, PUBLIC
from whichline_grader.author import ProblemSpec, specs

SPEC = ProblemSpec(
    public=specs("run_rope", PUBLIC, ("in_query_or_key",)), hidden=specs("run_rope", HIDDEN, ("in_query_or_key",))
)
