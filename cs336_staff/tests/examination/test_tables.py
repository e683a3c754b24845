"""The tables of mistakes: each of them can be made in every dtype in which a student's function is examined."""

from importlib import import_module

import pytest
import torch

from cs336_kit.engine.room import FOLDER
from cs336_kit.examination.contract import is_float
from cs336_kit.examination.table import Table

TABLES = {
    f"{path.parent.name}-{name}": table
    for path in sorted(FOLDER.glob("*/program.py"))
    for name, table in vars(import_module(f"cs336_kit.problems.{path.parent.name}.program")).items()
    if isinstance(table, Table)
}


@pytest.mark.parametrize("name", TABLES)
def test_a_mistake_can_be_made_in_every_dtype(name):
    table = TABLES[name]
    assert table.changes
    for change in table.changes:
        made = [change.at(change.numbers[0]) if change.numbers else change]
        for call in table.basic:
            arguments = table.calls[call]
            try:
                table.call(made, *arguments)
            except (RuntimeError, ValueError, IndexError):
                continue  # as the student's would
            for dtype in (torch.float64, torch.float16):
                answer = table.call(made, *(x.to(dtype) if is_float(x) else x for x in arguments))
                assert answer.dtype == dtype, change.id
