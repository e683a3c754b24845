"""Right submissions: whole programs, each in a style of its own."""

import runpy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from whichline.engine.assignment import this_root
from whichline.engine.compare import in_dtype
from whichline_grader.authoring.spec import Adapter, load_specs
from whichline_grader.paths import STAFF

PROGRAMS = "right_programs"  # in the folder `staff`
PLAIN = "plain_torch"  # the program in the most ordinary way, on which the others fall back


def _load_programs() -> dict[str, dict[str, Adapter]]:
    """The `run_*` functions of each program by the name of its file."""
    paths = sorted((this_root() / STAFF / PROGRAMS).glob("*.py"))
    loaded = {path.stem: runpy.run_path(str(path)) for path in paths}
    return {
        name: {call: given for call, given in program.items() if call.startswith("run_")}
        for name, program in loaded.items()
    }


def _in_the_dtype_of_its_inputs(answer: Adapter) -> Adapter:
    """A right answer as a program that students might write: computed in float64, and rounded once."""

    def rounded(*args: Any, **kwargs: Any) -> Any:
        dtypes = [x.dtype for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point()]
        wide = {name: in_dtype(x, torch.float64) for name, x in kwargs.items()}
        given = answer(*(in_dtype(x, torch.float64) for x in args), **wide)
        dtype = dtypes[0] if dtypes else torch.get_default_dtype()
        return tuple(in_dtype(x, dtype) for x in given) if isinstance(given, tuple) else in_dtype(given, dtype)

    return rounded


WRITTEN: Mapping[str, Mapping[str, Adapter]] = _load_programs()

# every `run_*` function, written in the most ordinary way; what nobody wrote gives the right answer, rounded
RIGHT: Mapping[str, Adapter] = {
    **{each.__name__: _in_the_dtype_of_its_inputs(each) for spec in load_specs().values() for each in spec.answers},
    **WRITTEN.get(PLAIN, {}),
}

# name of a style -> the adapters of a submission that is written in it, and in the ordinary way where it has no other
RIGHT_STYLES: Mapping[str, Mapping[str, Adapter]] = {
    name: {**RIGHT, **WRITTEN.get(name, {})} for name in (*WRITTEN, *({PLAIN} - WRITTEN.keys()))
}
