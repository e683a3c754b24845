"""Load what an author states about each problem, from its folder in `problems/`.

No other code of the staff names a problem: references, cases and hidden tests are found here.
"""

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from whichline.engine.assignment import ADAPTERS, FILE_NAME, PROBLEMS, Problem, SuiteError, get_root, load_problems
from whichline.engine.compare import in_float64
from whichline.engine.errors import CourseworkError
from whichline.engine.problem_folder import REFERENCE, list_adapters, list_problem_folders
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.paths import HIDDEN_TESTS, STAFF

Adapter = Callable[..., Any]  # a `run_*` function
Matrix = tuple[tuple[float | None, ...], ...]  # None is NaN or infinite


@dataclass(frozen=True)
class Figure:
    """A matrix of a submission's numbers on one public case, which its student sees beside the right one."""

    call: str  # the name of the adapter
    measure: Callable[[Adapter], Matrix]  # calls it and returns the usable numbers of its output; no rows without any
    right: Callable[[], Matrix]  # returns the right numbers
    allowed: Callable[[], tuple[tuple[bool, ...], ...]]  # returns for each number whether it may differ from 0
    compare: Callable[[Matrix], str]  # describes in a sentence where the two matrices differ most
    title: str  # the heading on the page
    row: str  # a word for one row of the matrix
    caption: str  # a description of the matrices


@dataclass(frozen=True)
class ProblemSpec:
    """All that an author states about one problem, except what ships."""

    public: Sequence[CaseSpec]  # the test cases that students have
    hidden: Sequence[CaseSpec]  # the test cases that they do not have
    answers: Sequence[Adapter] = ()  # the functions of the reference, named like the adapters
    helpers: Sequence[Adapter] = ()  # reference functions that the handout names and later problems call
    figure: Figure | None = None  # shown to students when a test of the problem fails
    # The names of an adapter's outputs: "answer", then the others in alphabetical order, as files keep them.
    outputs: Sequence[str] = ("answer",)

    @property
    def calls(self) -> Sequence[str]:
        """The names of its adapters."""
        return tuple(answer.__name__ for answer in self.answers)


@cache
def load_specs() -> Mapping[str, ProblemSpec]:
    """Load the specification of each problem by its id, in the order of the assignment, including those left out.

    SuiteError if a problem's folder is missing, belongs to no problem, or has errors, with one line for each error;
    AssignmentError if `assignment.toml` has errors.
    """
    problems, specs = load_all_problems(), dict[str, ProblemSpec]()
    strays = [id for id in list_problem_folders() if id not in problems]
    wrong = [f"{PROBLEMS}/{id} belongs to no problem of {FILE_NAME}: rename one of them, or remove it" for id in strays]
    for id in problems:
        try:
            specs[id] = _load_spec(id)
        except SuiteError as error:
            wrong.append(str(error))
    if specs.keys() == problems.keys():
        wrong += _check_adapters({call: id for id, spec in specs.items() for call in spec.calls})
    for kind in ("public", "hidden"):
        wrong += _check_names({id: getattr(spec, kind) for id, spec in specs.items()}, kind)
    for id, spec in specs.items():
        if list(spec.outputs) != ["answer", *sorted(spec.outputs[1:])]:
            expected = 'expected "answer" first, then the others in alphabetical order'
            wrong.append(f"{PROBLEMS}/{id}/{STAFF}/__init__.py: the outputs are {', '.join(spec.outputs)}; {expected}")
        first = {case.call: case.name for case in (*spec.hidden[::-1], *spec.public[::-1])}
        for call in first.keys() - spec.calls:
            wrong.append(f"the case {first[call]} calls {call}, which is not among the adapters of {id}")
    if wrong:
        raise SuiteError("\n".join(wrong))
    return specs


@cache
def load_all_problems() -> Mapping[str, Problem]:
    """Load all problems of the assignment by id, including those that this course leaves out; read once."""
    return load_problems(get_root(), left_out=None)


def find_figure(problems: Collection[str]) -> Figure | None:
    return next((spec.figure for id, spec in load_specs().items() if spec.figure and id in problems), None)


@cache
def reference_of(call: str) -> Adapter:
    """The reference function of an adapter or of a helper; KeyError if no reference has this name."""
    return {each.__name__: each for spec in load_specs().values() for each in (*spec.answers, *spec.helpers)}[call]


@cache
def outputs_of(call: str) -> Sequence[str]:
    return next(spec.outputs for spec in load_specs().values() if call in spec.calls)


def _load_spec(id: str) -> ProblemSpec:
    adapters = list_adapters(id)
    for name in (f"{STAFF}/__init__.py", HIDDEN_TESTS):
        if not (get_root() / PROBLEMS / id / name).exists():
            raise SuiteError(f"the problem {id} of {FILE_NAME} needs {PROBLEMS}/{id}/{name}")
    spec = getattr(_import(f"{PROBLEMS}.{id}.{STAFF}"), "SPEC", None)
    if not isinstance(spec, ProblemSpec):
        raise SuiteError(f"{PROBLEMS}/{id}/{STAFF}/__init__.py: expected SPEC, a ProblemSpec")
    reference = _import(f"{PROBLEMS}.{id}.{REFERENCE}")
    return replace(spec, answers=[in_float64()(getattr(reference, call)) for call in adapters])


def _import(name: str) -> ModuleType:
    """Import a file of the author's; an error in it is told with its line."""
    try:
        return import_module(name)
    except CourseworkError:
        raise
    except Exception as error:
        own = [each for each in extract_tb(error.__traceback__) if Path(each.filename).is_relative_to(get_root())]
        if not own:
            raise
        at = f"{Path(own[-1].filename).relative_to(get_root())}:{own[-1].lineno}"
        raise SuiteError(f"{at}: {type(error).__name__}: {error}") from error


def _check_adapters(homes: Mapping[str, str]) -> Iterator[str]:
    """Say where the functions of `adapters.py` and those of the problems differ."""
    body = ast.parse((get_root() / ADAPTERS).read_text(encoding="utf-8")).body
    defined = [each.name for each in body if isinstance(each, ast.FunctionDef) and each.name.startswith("run_")]
    for call, id in homes.items():
        if call not in defined:
            near = "".join(f": is it {each}?" for each in get_close_matches(call, defined, 1))
            yield f"{PROBLEMS}/{id} has {call}, which {ADAPTERS} does not define{near}"
    for call in defined:
        if call not in homes:
            yield f"{ADAPTERS} defines {call}, which no reference in {PROBLEMS}/ defines: remove it, or add a reference"


def _check_names(cases: Mapping[str, Sequence[CaseSpec]], kind: str) -> Iterator[str]:
    homes: dict[str, str] = {}
    for id, specs in cases.items():
        for name in (spec.name for spec in specs):
            if home := homes.get(name):
                yield f"the {kind} case {name} belongs to {home} and to {id}: rename one of them"
            homes[name] = id
