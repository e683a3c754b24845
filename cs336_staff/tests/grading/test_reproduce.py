"""`cs336 staff reproduce`: a wrong name is told before anything is started."""

import pytest
from click.testing import CliRunner

from cs336_staff.cli import staff
from cs336_staff.grading import reproduce
from cs336_staff.tests.sandbox.conftest import ROOT


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("test_sofmax[1d]", "is it test_softmax[1d] or "),
        ("Softmax: test_softmax[1e]", "is it test_softmax[1d] or "),
        ("zzz", "results.json has the names"),
    ],
)
def test_a_wrong_name_is_told_at_once(monkeypatch: pytest.MonkeyPatch, name: str, hint: str) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delattr(reproduce, "ready")
    told = CliRunner().invoke(staff, ["reproduce", str(ROOT), name])
    assert told.exit_code == 2
    assert f"no test is called {name.rpartition(': ')[2]}; {hint}" in told.output
