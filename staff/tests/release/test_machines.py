"""The verdict on right programs is the same on other machines: they have digits to spare there, too."""

import os
import subprocess
import sys

import pytest

from staff.tools.student import ROOT

# A tenth of three digits and half of the last ones: what is rounded to half precision once uses half of an eps.
VERIFY = """
import sys, torch
from pathlib import Path
from whichline.engine import case
from whichline_grader.authoring.programs import RIGHT_STYLES
from whichline_grader.release.verify import load_solved_suite, check_right_style, stored_cases
root, aten, threads, flush = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "True"
torch.set_num_threads(threads)
assert torch.set_flush_denormal(flush)
assert torch.backends.cpu.get_cpu_capability().lower() == aten, f"this processor has no {aten}"
suite = load_solved_suite(root)
case.THREE_DIGITS /= 10
case.LAST_DIGITS = {dtype: (of_largest / 2, of_each) for dtype, (of_largest, of_each) in case.LAST_DIGITS.items()}
complaints = [complaint for style in RIGHT_STYLES for complaint in check_right_style(suite, style)]
print(*complaints, *(complaint for cases in stored_cases(root) for complaint in cases.check()), sep="\\n", end="")
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("aten", "mkl", "threads", "flush"),
    [("default", "COMPATIBLE", 1, True), ("avx2", "AVX2", 2, False), ("avx512", "AVX512", 1, False)],
)
def test_right_programs_pass_on_other_machines(aten: str, mkl: str, threads: int, flush: bool) -> None:
    command = [sys.executable, "-W", "ignore", "-c", VERIFY, str(ROOT), aten, str(threads), str(flush)]
    machine = os.environ | {"ATEN_CPU_CAPABILITY": aten, "MKL_CBWR": mkl, "OMP_NUM_THREADS": str(threads)}
    finished = subprocess.run(command, cwd=ROOT, env=machine, capture_output=True, text=True, check=False, timeout=1800)
    assert (finished.stdout, finished.stderr) == ("", "")
