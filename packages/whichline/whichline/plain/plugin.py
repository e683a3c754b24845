"""pytest's face of it: with the table `[tool.whichline]`, the report of a failing test says which line is wrong.

It does nothing without that table, or where an assignment.toml lies beside it. pytest loads this module in every
environment that has the package: all else is imported where the table is found.
"""

import sys

import pytest

from whichline.plain.table import TableError, read_table


def pytest_configure(config: pytest.Config) -> None:
    root = config.inipath.parent if config.inipath else config.rootpath
    is_served = (root / "assignment.toml").exists() or hasattr(config, "workerinput")
    if is_served or "whichline.plain.child" in sys.modules:
        return
    try:
        table = read_table(root)
    except TableError as error:
        raise pytest.UsageError(str(error)) from None
    if table:
        from whichline.plain.process import Follower
        from whichline.plain.reports import TellsLines

        invoked = config.invocation_params
        follower = Follower(table, invoked.args, invoked.dir, sys.path)
        config.pluginmanager.register(TellsLines(follower, bool(config.getoption("numprocesses", None))))
