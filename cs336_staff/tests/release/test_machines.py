"""The verdict on right programs is the same on other machines, and the command says so when it is not."""

import click
import pytest
from click.testing import CliRunner

from cs336_staff.release import machines


@pytest.mark.slow
@pytest.mark.soak
def test_right_programs_pass_on_other_machines():
    """Of everything that the command does, what CI has time for."""
    result = CliRunner().invoke(machines.main, ["--few", "--seeds", "0"])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2 + len(machines.FEW)


def found(complaints: list[str]) -> dict[str, object]:
    return {"checks": 1234, "complaints": complaints, "largest": {"softmax": 0.418}, "answers": 1e-15, "bounds": 0.0}


def test_a_right_program_that_fails_is_named(monkeypatch):
    complaint = "fused fails attention/3d-causal: the answer is wrong in 1 of 2 places"
    monkeypatch.setattr(machines, "row", lambda machine, *_: found([complaint] if machine.flush else []))
    result = CliRunner().invoke(machines.main, ["--few"])
    assert result.exit_code == 1
    header, _, row, told, *others = result.output.splitlines()
    assert header == "| machine | checks | false failures | softmax | answers | bounds |"
    assert row.endswith("| 1,234 | 1 | 0.42 | 1e-15 | 0e+00 |")
    assert told.strip() == complaint
    assert all("| 1,234 | 0 |" in row for row in others)


def test_a_machine_that_is_not_to_be_had_is_told(monkeypatch):
    def row(machine: machines.Machine, *_: object) -> dict[str, object]:
        if machine.python == "3.14":
            raise click.ClickException(f"{machine}: no interpreter found")
        return found([])

    monkeypatch.setattr(machines, "row", row)
    result = CliRunner().invoke(machines.main, ["--environments"])
    assert result.exit_code == 0
    assert "could not be run: torch 2.15.0, Python 3.14" in result.stdout
    assert "no interpreter found" in result.stdout
