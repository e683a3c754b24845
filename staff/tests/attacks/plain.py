"""Grade the attacks the way most autograders do, for comparison: student code in the process that compares.

    uv run python -m staff.tests.attacks.plain FOLDER [ID...]

Each attack, or those that are named, is laid in a folder of its own below FOLDER beside public softmax tests that are
written as CS336 writes its own, and pytest runs in a fork of this process. The grade is pytest's exit status: 0 is full
marks.
"""

import atexit
import gc
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn

import numpy.testing  # noqa: F401  (imported before the fork, as torch and pytest are)
import pytest
import torch

from staff.tests import ROOT
from staff.tests.attacks.attack import Attack, find_attacks
from whichline_grader.sandbox.inside.lock_in import join_pages

SUITE = """
import json

import numpy
import pytest
from safetensors import safe_open

from adapters import run_softmax


def load(path):
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
        return tensors | json.loads(file.metadata()["case"])["arguments"]


@pytest.mark.parametrize("name", ["1d", "2d-first-dim", "3d-first-dim", "3d-last-dim", "3d-middle-dim"])
def test_softmax(name):
    case = load(f"fixtures/softmax/{name}.safetensors")
    expected = case["expected/answer"].numpy()
    actual = run_softmax(case["input/in_features"], dim=case["dim"]).detach().numpy()
    numpy.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
"""
SECONDS = 90
SECONDS_OF_A_HANG = 2
FLOOD = 1 << 20

Outcome = Literal["forged", "reached", "flooded", "hung", "killed", "refused"]


def lay_out(path: Path, folder: Path) -> None:
    """Put a submission and the tests where pytest will find them."""
    if path.is_dir():
        shutil.copytree(path, folder)
    elif path.suffix == ".zip":
        shutil.unpack_archive(path, folder)
    else:
        folder.mkdir()
        shutil.copyfile(path, folder / "adapters.py")
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_softmax.py").write_text(SUITE)
    (folder / "fixtures").symlink_to(ROOT / "fixtures")


def run_pytest(folder: Path) -> NoReturn:
    """Run the tests in `folder` and end with their exit status, after all that the submission does when Python ends."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    status = pytest.main(["--disable-plugin-autoload", "-pno:cacheprovider", "--capture=no", "--tb=short", "tests"])
    # To take torch apart, too, as sys.exit does, would take longer than the tests.
    atexit._run_exitfuncs()
    if "adapters" in sys.modules:
        vars(sys.modules["adapters"]).clear()
    sys.stdout.flush()
    os._exit(status)


def outcome_of(pid: int, output: Path, seconds: float) -> Outcome:
    """What became of the process, the leader of a group that is gone afterwards.

    forged: full marks. reached: no marks, but the attack did what it was after. flooded: more than 1 MiB of output.
    hung: it had to be killed. killed: it died of a signal, or could not be unpacked. refused: none of these.
    """
    pidfd = os.pidfd_open(pid)
    hung = not select.select([pidfd], [], [], seconds)[0]
    os.close(pidfd)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if hung:
        return "hung"
    if status == 0:
        return "forged"
    if status < 0:
        return "killed"
    if output.stat().st_size > FLOOD:
        return "flooded"
    return "reached" if re.search(r"reached$", output.read_text(errors="replace"), re.MULTILINE) else "refused"


def main(folder: Path, ids: Collection[str]) -> None:
    """Run the attacks, write `outcomes.json` and print how many forge the run."""
    os.environ["CS336_STAFF_TOKEN"] = "not for students"  # noqa: S105
    (folder / "made").mkdir(parents=True)
    torch.set_num_threads(1)  # threads do not survive a fork
    honest = Attack(Path(__file__).with_name("honest.py"), "honest", "", "forged", "")
    gc.freeze()  # what is here already need not be collected at the end of every fork
    join_pages()
    outcomes: dict[str, Outcome] = {}
    for attack in [honest, *find_attacks(folder / "made", ids)]:
        try:
            lay_out(attack.path, folder / attack.name)
        except OSError:  # unpacking it ends the grader
            outcomes[attack.name] = "killed"
            continue
        if (pid := os.fork()) == 0:
            run_pytest(folder / attack.name)
        seconds = SECONDS_OF_A_HANG if attack.plain == "hung" else SECONDS
        outcomes[attack.name] = outcome_of(pid, folder / attack.name / "output", seconds)
    (folder / "outcomes.json").write_text(json.dumps(outcomes))
    assert outcomes.pop(honest.name) == "forged", "an honest submission does not pass the plain run"
    for name, outcome in outcomes.items():
        print(f"{outcome:8} {name}")
    print(f"{Counter(outcomes.values())['forged']} of {len(outcomes)} attacks forge the plain run")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
