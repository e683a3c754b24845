"""The cases of the hidden properties: the same wherever they are drawn, and no two of a kind alike."""

import subprocess
import sys

import pytest

from cs336_staff.hidden.drawn import EXAMPLES, DrawnCases, Spread
from cs336_staff.hidden.release import load_release
from cs336_staff.problems.softmax.cases import kinds

DRAW = """
import sys
from cs336_staff.hidden.drawn import DrawnCases
from cs336_staff.hidden.release import load_release
from cs336_staff.problems.softmax.cases import kinds
for kind, draw in kinds().items():
    print([(tuple(case.inputs["in_features"].shape), case.inputs["dim"], float(case.inputs["in_features"].sum()))
           for case in DrawnCases(draw, load_release(), kind).examples()])
"""


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_of_few_choices_each_is_some_cases(length: int) -> None:
    for seed in range(20):
        chosen = {Spread(seed, turn).choice(range(length)) for turn in range(EXAMPLES)}
        assert len(chosen) == min(length, EXAMPLES)


def test_every_kind_has_a_case_of_each_scale() -> None:
    for kind, draw in kinds().items():
        cases = DrawnCases(draw, load_release(), kind).examples()
        largest = sorted(float(case.inputs["in_features"].abs().max()) for case in cases)
        assert largest[0] < 10 < largest[-1], kind


@pytest.mark.slow
def test_what_is_drawn_depends_on_no_module_that_is_imported_besides(tmp_path) -> None:
    (tmp_path / "constants.py").write_text(f"NUMBERS = {list(range(1000, 1300))}\n")
    drawn = [
        subprocess.run([sys.executable, "-c", before + DRAW], cwd=tmp_path, capture_output=True, text=True, check=True)
        for before in ("", "import constants")
    ]
    assert len(drawn[0].stdout.splitlines()) == 3
    assert drawn[0].stdout == drawn[1].stdout
