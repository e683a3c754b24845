"""Reference solutions: whole right programs, each in a style of its own."""

import runpy
from collections.abc import Mapping
from typing import Any

import torch

from whichline.engine.assignment import get_root
from whichline.engine.compare import in_dtype, is_float
from whichline_grader.authoring.spec import Adapter, load_specs
from whichline_grader.paths import STAFF

PROGRAMS = "right_programs"  # in the folder `staff`
PLAIN = "plain_torch"  # the most ordinary program, which fills the gaps of the others


def _round_to_input_dtype(answer: Adapter) -> Adapter:
    """Make a reference act as a student's program: compute in float64, and round once to the dtype of the inputs."""

    def rounded(*args: Any, **kwargs: Any) -> Any:
        wide = {name: in_dtype(x, torch.float64) for name, x in kwargs.items()}
        given = answer(*(in_dtype(x, torch.float64) for x in args), **wide)
        dtype = next((x.dtype for x in (*args, *kwargs.values()) if is_float(x)), torch.get_default_dtype())
        return tuple(in_dtype(x, dtype) for x in given) if isinstance(given, tuple) else in_dtype(given, dtype)

    return rounded


# The `run_*` functions of each program, by the name of its file.
WRITTEN: Mapping[str, Mapping[str, Adapter]] = {
    path.stem: {call: given for call, given in runpy.run_path(str(path)).items() if call.startswith("run_")}
    for path in sorted((get_root() / STAFF / PROGRAMS).glob("*.py"))
}

# Every `run_*` function in the ordinary style; where nobody wrote one, the rounded reference.
RIGHT: Mapping[str, Adapter] = {
    **{each.__name__: _round_to_input_dtype(each) for spec in load_specs().values() for each in spec.answers},
    **WRITTEN.get(PLAIN, {}),
}

# From the name of a style to the adapters of a submission in it; the ordinary style fills the gaps.
RIGHT_STYLES: Mapping[str, Mapping[str, Adapter]] = {
    name: {**RIGHT, **WRITTEN.get(name, {})} for name in (*WRITTEN, *({PLAIN} - WRITTEN.keys()))
}
