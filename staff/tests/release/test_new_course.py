"""A course keeps its secret in a folder outside the checkout, and nothing is ever drawn from another one for it."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from staff.tests import ROOT
from staff.tests.files import commit_all, copy_tree, files_in, write_files
from staff.tests.grading.conftest import invoke, succeed
from whichline.engine.assignment import load_problems
from whichline.engine.case import list_case_names, load_metadata
from whichline_grader.authoring.spec import load_specs
from whichline_grader.authoring.stored_cases import check_fixtures
from whichline_grader.hidden import release
from whichline_grader.hidden.release import Release, load_release
from whichline_grader.paths import COURSE
from whichline_grader.release import new_course
from whichline_grader.release.new_assignment import TEMPLATE

SPECS = load_specs()
FEW = SPECS["softmax"].hidden[:2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with little in it, and a home beside it."""
    checkout = tmp_path / "checkout"
    (checkout / "staff").mkdir(parents=True)
    shutil.copyfile(ROOT / "assignment.toml", checkout / "assignment.toml")
    shutil.copytree(ROOT / "problems", checkout / "problems", ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / COURSE).write_text('# of the course\n\n# folder = "~/x"  # its folder\n[late]\npercent = 10\n')
    write_files(checkout, {file: "" for problem in load_problems(ROOT).values() for file in problem.files})
    for module in (release, new_course):
        monkeypatch.setattr(module, "get_root", lambda: checkout)
    monkeypatch.setattr(new_course, "load_specs", lambda: {"softmax": replace(SPECS["softmax"], hidden=FEW)})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(checkout)
    return checkout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "courses" / "attention"


def refused(*arguments: str | Path) -> str:
    """What a command says that changes nothing, in the checkout or beside it, in its last line."""
    before = files_in(Path.cwd().parent)
    result = invoke(*arguments)
    assert isinstance(result.exception, SystemExit), result.output
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert files_in(Path.cwd().parent) == before
    return result.output.splitlines()[-1]


def test_a_course_gets_a_folder_with_a_secret_and_its_cases(checkout: Path, folder: Path) -> None:
    printed = succeed("new-course", folder)
    assert set(files_in(folder)) == {"secret.txt", *(f"hidden/{spec.name}.safetensors" for spec in FEW)}
    assert len(bytes.fromhex((folder / "secret.txt").read_text())) == 32
    assert (folder / "secret.txt").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == (folder / "hidden").stat().st_mode & 0o777 == 0o700
    assert load_release().folder == folder
    assert list(check_fixtures(folder / "hidden", FEW, load_release().seed)) == []
    digest = hashlib.sha256((folder / "secret.txt").read_bytes().strip()).hexdigest()
    assert (checkout / COURSE).read_text() == (
        f'folder = "~/courses/attention"\nsecret_sha256 = "{digest}"\n'
        '# of the course\n\n# folder = "~/x"  # its folder\n[late]\npercent = 10\n'
    )
    for said in (str(folder), "secret.txt", "hidden/", "results/", "Back it up"):
        assert said in printed


@pytest.mark.parametrize("lost", ["missing", "not the secret that course.toml names"])
@pytest.mark.parametrize("command", ["grade .", "verify --write", "gradescope -o a.zip", "verify"])
def test_a_lost_secret_stops_grading_drawing_and_packing(checkout: Path, folder: Path, command: str, lost: str) -> None:
    invoke("new-course", folder)
    secret = folder / "secret.txt"
    secret.unlink() if lost == "missing" else secret.write_text("0" * 64)
    assert refused(*command.split()) == f"Error: {secret} is {lost}; restore it from your backup"


def test_a_course_without_its_cases_is_not_packed(checkout: Path, folder: Path) -> None:
    invoke("new-course", folder)
    shutil.rmtree(folder / "hidden")
    assert "is missing from" in (said := refused("gradescope", "-o", "a.zip"))
    assert said.endswith("run `uv run cs336 staff verify --write`")


def test_a_second_course_is_refused(checkout: Path, folder: Path) -> None:
    invoke("new-course", folder)
    named = f"Error: course.toml already names a course, in {folder}; --force makes another one"
    assert refused("new-course", folder) == refused("new-course", folder.parent / "other") == named


@pytest.mark.parametrize("there", ["secret.txt", "hidden", "results"])
def test_a_folder_that_holds_a_course_is_refused(folder: Path, checkout: Path, there: str) -> None:
    (folder / there).mkdir(parents=True)
    assert refused("new-course", folder) == f"Error: {folder} already holds a course; name another folder, or --force"


def test_force_keeps_the_secret_and_the_cases_that_were_there(checkout: Path, folder: Path) -> None:
    write_files(folder, {"roster.csv": "Student"})
    invoke("new-course", folder)
    write_files(folder, {"results/grades.csv": "ada"})
    before, secret = files_in(folder), load_release().secret
    printed = succeed("new-course", folder, "--force")
    assert load_release().secret != secret
    assert list(check_fixtures(folder / "hidden", FEW, load_release().seed)) == []
    dated = re.compile(r"\d{4}-\d\d-\d\d-\d{6}-")
    after = files_in(folder)
    kept = {name: text for name, text in before.items() if name.startswith(("secret", "hidden"))}
    assert {dated.sub("", name): text for name, text in after.items() if dated.match(name)} == kept
    assert (after["roster.csv"], after["results/grades.csv"]) == (b"Student", b"ada")
    assert str(next(folder.glob("*-secret.txt"))) in printed
    assert (checkout / COURSE).read_text().count("\n") == 7, "the two keys are replaced"


@pytest.mark.parametrize("place", [".", "course", "staff/course", "~/course", "link/course"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_folder_inside_the_checkout_is_refused(checkout: Path, place: str, force: list[str]) -> None:
    (checkout / "link").symlink_to(checkout / "staff")
    assert "is inside the checkout, where `git clean` deletes it" in refused("new-course", place, *force)


def test_a_folder_that_git_takes_with_the_checkout_is_refused(checkout: Path, folder: Path) -> None:
    (checkout.parent / ".git").mkdir()
    assert f"is inside {checkout.parent}, which git keeps: name one outside" in refused("new-course", folder)


@pytest.mark.parametrize("ignored", [ROOT / ".gitignore", ROOT / "examples/vision/.gitignore", TEMPLATE / "gitignore"])
def test_git_takes_nothing_that_a_course_keeps_to_itself(tmp_path: Path, ignored: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    shutil.copyfile(ignored, tmp_path / ".gitignore")
    kept = ("autograder.zip", "autograder-2.zip", "roster.csv", "groups.csv", "results/grades.csv", "submissions/x.zip")
    write_files(tmp_path, dict.fromkeys(kept, ""))
    added = subprocess.check_output(["git", "status", "--porcelain", "-uall"], cwd=tmp_path, text=True)
    assert added == "?? .gitignore\n"


def test_a_full_disk_leaves_what_was_there(checkout: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("new-course", folder)
    whole = Path.write_bytes

    def write(path: Path, data: bytes) -> int:
        if path.name == f"{FEW[1].name}.safetensors".rpartition("/")[2]:
            raise OSError(28, "No space left on device", str(path))
        return whole(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    assert refused("new-course", folder, "--force").endswith("No space left on device")
    assert not [path for path in folder.iterdir() if path.name not in ("secret.txt", "hidden")]


@pytest.mark.nightly
def test_a_course_from_a_checkout_of_its_own(tmp_path: Path) -> None:
    """With git, the archive for Gradescope, and the workflow for GitHub, which has the secret and no cases."""
    checkout, folder = tmp_path / "checkout", tmp_path / "home" / "course"
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(checkout)}

    def do(*command: str | Path) -> str:
        finished = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr + finished.stdout
        return finished.stdout

    def staff(*command: str | Path) -> str:
        return do(sys.executable, "-m", "whichline", "staff", *command)

    copy_tree(checkout)
    commit_all(checkout)
    staff("new-course", folder)
    write_files(checkout, dict.fromkeys(("roster.csv", "groups.csv", "staff/roster.csv", "submissions/ada.zip"), ""))
    staff("gradescope")
    assert do("git", "status", "--porcelain") == " M staff/course.toml\n"
    assert (checkout / COURSE).read_text().count('folder = "~/course"') == 1
    secret = (folder / "secret.txt").read_bytes().strip()
    with zipfile.ZipFile(checkout / "autograder.zip") as archive:
        names = archive.namelist()
        assert len(names) == len({*names})
        assert not [name for name in names if "roster" in name]
        archive.extractall(tmp_path / "source")
    packed = tmp_path / "source" / "staff" / "course"
    assert ((packed / "secret.txt").read_bytes(), files_in(packed / "hidden")) == (secret, files_in(folder / "hidden"))
    loads = (
        "import os, sys; from pathlib import Path; os.chdir(sys.argv[1]);"
        "from whichline_grader.grading.suite import load_graded_suite;"
        "print(load_graded_suite(Path.cwd()).release.folder)"
    )
    environment["PYTHONPATH"] = str(tmp_path / "source")
    assert do(sys.executable, "-P", "-c", loads, tmp_path / "source").strip() == str(packed)
    environment["PYTHONPATH"] = str(checkout)
    shutil.rmtree(folder)
    workflow = yaml.safe_load((ROOT / "packages/grader/whichline_grader/docs/github/grade.yml").read_text())
    (step,) = [step for step in workflow["jobs"]["grade"]["steps"] if step.get("name") == "The hidden cases"]
    environment |= step["env"] | {"HIDDEN_SECRET": secret.decode()}
    lines = step["run"].replace("uv run --no-sync python", sys.executable)
    lines = lines.replace("uv run --no-sync cs336", f"{sys.executable} -m whichline")
    assert "uv run" not in lines
    do("/bin/bash", "-euc", lines)
    hidden, seed = folder / "hidden", Release(secret).seed
    seeds = {name: load_metadata(hidden, name)["seed"] for name in list_case_names(hidden, "**/*")}
    assert seeds == {case.name: seed(case.name) for spec in SPECS.values() for case in spec.hidden}
    assert do("git", "status", "--porcelain") == " M staff/course.toml\n"
