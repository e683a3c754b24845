"""Right submissions: whole programs, each in a style of its own."""

import runpy
from collections.abc import Mapping

from cs336_staff.authoring.room import FOLDER, Adapter


def _load_programs() -> dict[str, dict[str, Adapter]]:
    """The `run_*` functions of each program by the name of its file."""
    loaded = {path.stem: runpy.run_path(str(path)) for path in sorted(FOLDER.glob("right_programs/*.py"))}
    return {
        name: {call: given for call, given in program.items() if call.startswith("run_")}
        for name, program in loaded.items()
    }


_PROGRAMS = _load_programs()

# every `run_*` function, written in the most ordinary way
RIGHT: Mapping[str, Adapter] = _PROGRAMS["plain_torch"]

# name of a style -> the adapters of a submission that is written in it, and in the ordinary way where it has no other
RIGHT_STYLES: Mapping[str, Mapping[str, Adapter]] = {name: {**RIGHT, **program} for name, program in _PROGRAMS.items()}
