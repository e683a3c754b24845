"""Is the verdict the same everywhere? Right programs on every kind of machine that this one can pass for.

`uv run python -m cs336_staff.release.machines` on this torch and this Python; with `--environments` also on others.

A row is one kind of machine and one process: the vector instructions that torch and MKL use, the threads, whether
numbers below the normal ones are taken for 0. In it every style of right program answers every stored case of both
suites, and what each property of the hidden suite draws from other seeds than that of the release; the stored answers
and bounds are computed once more. In the first row of all each misconception must fail in either suite. Where a right
program fails, the bound is wrong, and the command ends with status 1.
"""

import itertools
import json
import os
import subprocess
import sys
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import torch
from torch import Tensor

from cs336_kit.engine import case
from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.case import Case, load_case
from cs336_kit.engine.compare import compare
from cs336_staff.authoring.right_styles import RIGHT_STYLES
from cs336_staff.authoring.stored_cases import NOTHING, answers, bounds_of
from cs336_staff.hidden.drawn import DrawnCases
from cs336_staff.release.stages import Stage
from cs336_staff.release.verify import both_suites, run_suite, stored_cases, verify_misconceptions

ROOT = find_root(Path(__file__).parent)

# The oldest and the newest torch that pyproject.toml allows.
OLDEST, NEWEST = "2.9.0", "2.15.0"
ENVIRONMENTS = [(OLDEST, "3.11"), (OLDEST, "3.13"), (NEWEST, "3.11"), (NEWEST, "3.13"), (NEWEST, "3.14")]


@dataclass(frozen=True)
class Machine:
    """The settings of a row; without a torch and a Python of its own, the row runs on those that run the command."""

    aten: str
    mkl: str
    threads: int = 1
    flush: bool = False
    torch: str = ""
    python: str = ""

    def __str__(self) -> str:
        versions = [f"torch {self.torch}, Python {self.python}"] if self.torch else []
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        flushes = ["flush to zero"] if self.flush else []
        return ", ".join([*versions, self.aten, f"MKL {self.mkl}", threads, *flushes])

    def command(self) -> list[str]:
        if not self.torch:
            return [sys.executable]
        return ["uv", "run", "--isolated", "--python", self.python, "--with", f"torch=={self.torch}", "python"]

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "ATEN_CPU_CAPABILITY": self.aten,
            "MKL_CBWR": self.mkl,
            "OMP_NUM_THREADS": str(self.threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # on a busy machine, threads that wait for each other take all of it
        }


MACHINES = [
    Machine(*settings)
    for settings in itertools.product(
        ("default", "avx2", "avx512"), ("COMPATIBLE", "AVX2", "AVX512"), (1, 2), (False, True)
    )
]
FEW = [Machine("default", "COMPATIBLE", 1, True), Machine("avx2", "AVX2", 2), Machine("avx512", "AVX512")]


def measure(seeds: int, threads: int, flush: bool, misconceptions: bool) -> dict[str, Any]:
    """One row, in this process."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(flush)
    suite = both_suites(ROOT)
    answering = {test.name: test for test in suite.tests if test.stored or test.drawn}
    drawn = [test for test in answering.values() if test.drawn]
    again = [replace(test, drawn=other_seed(test.drawn, seed)) for seed in range(seeds) for test in drawn]
    tests = [*answering.values(), *again]
    complaints, largest = [], {}
    for test in tests:
        noted = partial(noting, largest, test.problem)
        # Everything is held against its bound, also what a test asks for to three digits alone.
        with patch.object(case, "compare", noted), patch.object(Case, "tolerance", property(lambda case: case.bound)):
            for style, adapters in RIGHT_STYLES.items():
                [result] = run_suite(replace(suite, tests=[test]), adapters)
                complaints += [] if result.passed else [f"{style} fails {result.test}: {result.headline}"]
    if misconceptions:
        verify_misconceptions(suite, stage := Stage())
        complaints += stage.errors
    of_answers, of_bounds = 0.0, 0.0
    for cases in stored_cases(ROOT):
        complaints += cases.check()
        for spec in cases.specs:
            stored = load_case(cases.folder, spec.name)
            expected = answers(spec.call, stored.inputs, spec.gradients, stored.cotangent)
            bounds = bounds_of(spec.call, stored.inputs, expected, stored.cotangent)
            for what, right in stored.expected.items():
                off = (expected[what] - right).abs().max() / right.abs().max()
                of_answers = max(of_answers, float(off))
                off = (bounds[what] / stored.bound[what] - 1).where(stored.bound[what] > NOTHING, 0.0)
                of_bounds = max(of_bounds, float(off.abs().max()))
    return {
        "aten": torch.backends.cpu.get_cpu_capability().lower(),
        "checks": len(tests) * len(RIGHT_STYLES),
        "complaints": complaints,
        "largest": largest,
        "answers": of_answers,
        "bounds": of_bounds,
    }


def noting(largest: dict[str, float], problem: str, answer: Any, expected: Tensor, *others: Any) -> None:
    """Compare as the engine does, and note the largest error of a problem, in bounds."""
    compare(answer, expected, *others)
    error, bound = (answer.detach().double() - expected).abs(), others[1]
    largest[problem] = max(largest.get(problem, 0.0), float((error / bound).where(error > 0, 0.0).max()))


def other_seed(drawn: Any, seed: int) -> DrawnCases:
    """Draw what a hidden property would draw from another seed."""
    other = copy(drawn)
    other.seed = seed
    return other


def row(machine: Machine, seeds: int, misconceptions: bool) -> dict[str, Any]:
    """Run `measure` as on that machine, in a process of its own.

    Raises:
        click.ClickException: the process failed, with what it said last; or the processor has no such instructions.
    """
    arguments = (seeds, machine.threads, machine.flush, misconceptions)
    code = f"import json; from {__spec__.name} import measure; print(json.dumps(measure{arguments}))"
    command = [*machine.command(), "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=machine.environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{machine}: {done.stderr.strip().splitlines()[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["aten"] != machine.aten:
        raise click.ClickException(f"{machine}: this processor has no {machine.aten}")
    return found


@click.command()
@click.option("--seeds", default=200, show_default=True, help="From how many seeds each property draws.")
@click.option("--few", is_flag=True, help="Three rows in place of 36.")
@click.option("--environments", is_flag=True, help="Other versions of torch and Python instead, which uv fetches.")
def main(seeds: int, few: bool, environments: bool) -> None:
    """Check right programs against the bounds, as on other machines."""
    machines = FEW if few else MACHINES
    if environments:
        machines = [Machine("avx512", "AVX512", torch=torch, python=python) for torch, python in ENVIRONMENTS]
    failed, header = False, ""
    for machine in machines:
        try:
            found = row(machine, seeds, not few and not header)
        except click.ClickException as error:
            click.echo(f"could not be run: {error.message}")
            continue
        if not header:
            header = f"| machine | checks | false failures | {' | '.join(found['largest'])} | answers | bounds |"
            click.echo(header)
            click.echo("| --- " * (header.count("|") - 1) + "|")
        largest = " | ".join(f"{x:.2f}" for x in found["largest"].values())
        counts = f"{found['checks']:,} | {len(found['complaints'])}"
        click.echo(f"| {machine} | {counts} | {largest} | {found['answers']:.0e} | {found['bounds']:.0e} |")
        for complaint in found["complaints"]:
            click.echo(f"    {complaint}")
        failed |= bool(found["complaints"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
