"""Specifications of problems: what is not as it should be in one is refused in a line that names the place."""

import ast
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from staff.tests import ROOT
from staff.tests.files import write_files
from whichline.engine.assignment import SuiteError
from whichline.engine.problem_folder import list_adapters
from whichline_grader.authoring import spec
from whichline_grader.authoring.cases import CaseSpec
from whichline_grader.authoring.programs import RIGHT
from whichline_grader.authoring.spec import load_all_problems, load_specs

PROBLEMS, SPECS = load_all_problems(), load_specs()
SOFTMAX = SPECS["softmax"]


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    load_specs.cache_clear()
    yield
    load_specs.cache_clear()


def refuse(said: str) -> None:
    with pytest.raises(SuiteError, match=said):
        load_specs()


def test_a_problem_without_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "load_all_problems", lambda: {**PROBLEMS, "gelu": PROBLEMS["softmax"]})
    refuse(r"^the problem gelu of assignment.toml has no problems/gelu/reference.py$")


def test_a_problem_without_hidden_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_files(tmp_path, {"problems/softmax/staff/__init__.py": ""})
    monkeypatch.setattr(spec, "get_root", lambda: tmp_path)
    monkeypatch.setattr(spec, "load_all_problems", lambda: dict.fromkeys(PROBLEMS, PROBLEMS["softmax"]))
    refuse("(?m)^the problem softmax of assignment.toml needs problems/softmax/staff/hidden_tests.py$")


def test_a_mistake_in_an_authors_file_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = "from whichline_grader.author import ProblemSpec\n\nSPEC = ProblemSpec(out=1)\n"
    folder = write_files(tmp_path / "problems/softmax/staff", {"hidden_tests.py": "", "__init__.py": source})
    monkeypatch.setattr(spec, "get_root", lambda: tmp_path)
    monkeypatch.setattr(spec, "load_all_problems", lambda: {"softmax": PROBLEMS["softmax"]})
    monkeypatch.setattr(spec, "import_module", lambda _: runpy.run_path(str(folder / "__init__.py")))
    refuse(r"(?m)^problems/softmax/staff/__init__.py:3: TypeError: .*unexpected keyword argument 'out'$")


def test_a_problem_that_was_renamed_in_assignment_toml_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = {"soft_max" if id == "softmax" else id: problem for id, problem in PROBLEMS.items()}
    monkeypatch.setattr(spec, "load_all_problems", lambda: renamed)
    refuse("(?m)^problems/softmax belongs to no problem of assignment.toml: rename one of them, or remove it$")


def test_every_adapter_has_its_reference_in_one_problem_and_a_right_program() -> None:
    functions = ast.parse((ROOT / "adapters.py").read_text()).body
    adapters = sorted(each.name for each in functions if isinstance(each, ast.FunctionDef))
    assert adapters == sorted(call for each in SPECS.values() for call in each.calls) == sorted(RIGHT)


def test_a_case_of_an_adapter_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = [CaseSpec("softmax/5d", "run_sotfmax", lambda generator: {})]
    monkeypatch.setattr("problems.softmax.staff.SPEC", replace(SOFTMAX, hidden=hidden))
    refuse("^the case softmax/5d calls run_sotfmax, which is not among the adapters of softmax$")


def test_a_reference_of_an_adapter_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_sotfmax(x: Any) -> Any:
        return x

    monkeypatch.setattr("problems.softmax.reference.run_sotfmax", run_sotfmax, raising=False)
    monkeypatch.setattr(spec, "list_adapters", lambda id: ["run_sotfmax"] if id == "softmax" else list_adapters(id))
    refuse(r"(?m)^problems/softmax has run_sotfmax, which adapters.py does not define: is it run_softmax\?$")


def test_an_adapter_of_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text((ROOT / "adapters.py").read_text() + "\ndef run_conv(x):\n    return x\n")
    (tmp_path / "problems").symlink_to(ROOT / "problems")
    monkeypatch.setattr(spec, "get_root", lambda: tmp_path)
    refuse("^adapters.py defines run_conv, which no reference in problems/ defines: remove it, or add a reference$")


@pytest.mark.parametrize("kind", ["public", "hidden"])
def test_a_case_of_two_problems(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    first = getattr(SOFTMAX, kind)[0]
    specs = {**SPECS, "linear": replace(SPECS["linear"], **{kind: [first]})}
    monkeypatch.setattr(spec, "_load_spec", specs.__getitem__)
    refuse(rf"(?m)^the {kind} case {first.name} belongs to softmax and to linear: rename one of them$")


def test_all_that_is_wrong_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("problems.softmax.staff.SPEC", replace(SOFTMAX, outputs=("answer", "b", "a")))
    monkeypatch.delattr("problems.linear.staff.SPEC")
    refuse(
        "^problems/linear/staff/__init__.py: expected SPEC, a ProblemSpec\nproblems/softmax/staff/__init__.py: "
        'the outputs are answer, b, a; expected "answer" first, then the others in alphabetical order$'
    )
