"""Find the mistakes of a submission, in the process that runs its code.

This process has all that students have, the references among it. So it earns no points, and only the submission's own
student reads its findings.
"""

import linecache
from dataclasses import replace
from pathlib import Path
from typing import Any

from whichline.engine.assignment import get_assignment, load_problems, serve
from whichline.engine.case import Case
from whichline.engine.problem_folder import find_on_paper
from whichline.engine.result import result_from_json
from whichline.engine.suite import Test, load_suite
from whichline.locate.explain import find
from whichline.locate.reference import list_counterparts, load_references
from whichline_grader.sandbox.inside.importing import ROOT
from whichline_grader.sandbox.inside.serve import Diagnose


def prepare(folder: str) -> Diagnose:
    """Read the public suite in this folder, which is deleted before the first submission comes."""
    serve(Path(folder))
    _ = get_assignment()  # cached while the file exists
    suite = load_suite(Path(folder), [Path(folder, "tests")], load_problems(Path(folder)))
    suite = replace(suite, tests=[_load_case(test) for test in suite.tests])
    for problem in suite.problems:
        find_on_paper(problem)
        for reference in load_references(problem).values():
            reference.load()
    list_counterparts()

    def diagnose(
        adapters: Any, files: dict[str, bytes], results: list[str], drawn: list[dict[str, Any]]
    ) -> tuple[list[str], list[str]]:
        for path, source in files.items():
            text = source.decode(errors="replace")
            linecache.cache[f"{ROOT}/{path}"] = len(text), None, text.splitlines(keepends=True), f"{ROOT}/{path}"
        suite.calls.adapters = adapters
        ran = [result_from_json(result) for result in results]
        cases = [Case(**each) for each in drawn]
        last = ran[len(ran) - len(cases) :]
        new = [suite.make_test(each.test, each.problem, case) for each, case in zip(last, cases, strict=True)]
        own = replace(suite, root=Path(ROOT), tests=[*suite.tests, *new])
        errors: list[str] = []
        return [each.as_json() for each in find(own, ran, errors=errors)], errors

    return diagnose


def _load_case(test: Test) -> Test:
    if not test.stored:
        return test
    case = test.stored()
    return replace(test, stored=lambda: case)
