"""Seconds of the search for what is wrong, for each problem of which tests fail, over all specimens.

python -m staff.tools.benchmark_findings
"""

import gc
import statistics
import time

import click

from staff.tests.specimens.specimen import SPECIMENS, Specimen, choose_tests
from staff.tools.student import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.suite import Suite, load_suite
from whichline.locate.explain import explain
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.release.verify import run_suite

SLOWEST = 12


@click.command()
def benchmark() -> None:
    """Print the median, what nine of ten need, the worst, and which these are."""
    gc.freeze()  # the right programs are not looked into: in a student's process they pass
    public = load_suite(ROOT, [ROOT / "tests"], load_problems(ROOT))
    taken = sorted((each for specimen in SPECIMENS for each in time_findings(specimen, public)), reverse=True)
    seconds = [each for each, _ in taken]
    median, nine_of_ten = statistics.median(seconds), seconds[len(seconds) // 10]
    click.echo(f"{len(taken)} failing problems: median {median:.2f} s, nine of ten {nine_of_ten:.2f} s, the slowest:")
    for each, what in taken[:SLOWEST]:
        click.echo(f"{each:6.2f} s  {what}")


def time_findings(specimen: Specimen, public: Suite) -> list[tuple[float, str]]:
    """The seconds that each problem adds, in the order of the assignment, with what that is."""
    adapters = specimen.adapters()
    suite = choose_tests(public, adapters)
    results = run_suite(suite, {**RIGHT, **adapters})
    found, taken = [], []
    for problem in {each.problem for each in results if each.is_wrong}:
        start = time.process_time()
        found = explain(suite, results, only={problem}, before=found)
        taken.append((time.process_time() - start, f"{specimen}, {problem}"))
    return taken


if __name__ == "__main__":
    benchmark()
