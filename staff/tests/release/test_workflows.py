"""The workflows that staff copy: what they may do, and whether their commands are those that exist here."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from staff.tests import ROOT
from whichline_grader.grading.commands import grade
from whichline_grader.release.handout import OVERLAY

WORKFLOWS = ROOT / "packages" / "grader" / "whichline_grader" / "docs" / "github"


def steps(name: str) -> dict[str, str]:
    """The commands of a workflow's steps, by name."""
    (job,) = workflow(name)["jobs"].values()
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((WORKFLOWS / name).read_text())


@pytest.mark.parametrize("name", ["check.yml", "grade.yml"])
def test_a_workflow_may_read_and_nothing_a_student_chose_becomes_a_command(name):
    assert workflow(name)["permissions"] == {"contents": "read"}
    (job,) = workflow(name)["jobs"].values()
    assert "permissions" not in job
    assert not [command for command in steps(name).values() if "${{" in command]
    checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_students_run_the_commands_of_the_readme_without_a_secret():
    assert "secrets" not in (WORKFLOWS / "check.yml").read_text()
    install, *commands, check = [line for command in steps("check.yml").values() for line in command.splitlines()]
    assert install == "pipx install uv"
    assert "\n".join(["```sh", *commands, "export UV_NO_SYNC=1", "```"]) in (ROOT / OVERLAY / "README.md").read_text()
    assert workflow("check.yml")["jobs"]["check"]["env"] == {"UV_NO_SYNC": 1}
    assert check == "uv run pytest"


def test_the_container_has_what_the_readme_installs():
    container = json.loads((ROOT / OVERLAY / ".devcontainer/devcontainer.json").read_text())
    commands = container["postCreateCommand"].split(" && ")
    assert "\n".join(["```sh", *commands, "export UV_NO_SYNC=1", "```"]) in (ROOT / OVERLAY / "README.md").read_text()
    assert container["containerEnv"] == {"UV_NO_SYNC": "1"}


def test_the_step_that_grades_leaves_the_results_where_they_are_uploaded(tmp_path, monkeypatch):
    (tmp_path / "submissions" / "course" / "ada").mkdir(parents=True)
    for name, value in (("GITHUB_WORKSPACE", tmp_path), ("RUNNER_TEMP", tmp_path), ("REPOSITORY", "course/ada")):
        monkeypatch.setenv(name, str(value))
    words = shlex.split(os.path.expandvars(steps("grade.yml")["Grade"]))
    assert words[:6] == ["uv", "run", "--no-sync", "cs336", "staff", "grade"]
    given = grade.make_context("grade", words[6:]).params
    assert given["submission"] == (tmp_path / "submissions" / "course" / "ada",)
    *_, upload = workflow("grade.yml")["jobs"]["grade"]["steps"]
    assert given["out"] == Path(upload["with"]["path"].replace("${{ runner.temp }}", str(tmp_path)))
