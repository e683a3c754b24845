"""The lab's commands in this process, on whatever attention a test writes."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from staff.tools.student import ROOT
from whichline.cli import main as cs336

Lab = Callable[..., Result]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """`lab(*arguments, adapters=...)`: run `cs336` in a folder with these adapters, by default those of the solution.

    What they import is the solution's; a test that breaks it writes adapters of its own.
    """
    shutil.copy(ROOT / "assignment.toml", tmp_path)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # so that what the command puts there is taken away again
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setitem(sys.modules, "adapters", None)

    def run(*arguments: str, adapters: str = (ROOT / "adapters.py").read_text()) -> Result:
        (tmp_path / "adapters.py").write_text(adapters)
        result = CliRunner().invoke(cs336, arguments, env={"COLUMNS": "80"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
