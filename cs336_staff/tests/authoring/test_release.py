"""Hidden inputs come from a secret: nobody without it knows them, and a suite of two releases is refused."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cs336_kit.engine.assignment import SuiteError, find_root
from cs336_staff.cli import staff
from cs336_staff.grading.suite import load_graded_suite
from cs336_staff.hidden import release
from cs336_staff.hidden.release import Release, load_release
from cs336_staff.release import commands

ROOT = find_root(Path(__file__).parent)


def test_a_seed_says_nothing_about_another() -> None:
    one, other = Release("one", False, {}), Release("other", False, {})
    names = ["softmax/1d", "softmax/2d", "linear/1d", "linear/2d"]
    seeds = [each.seed(name) for each in (one, other) for name in names]
    assert len({*seeds}) == len(seeds)
    assert seeds[0] ^ seeds[1] ^ seeds[2] ^ seeds[3] != 0  # as of a checksum, which is linear
    assert max(seeds) < 2**63  # a database takes it


def test_without_a_secret_it_is_a_rehearsal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(release, "SECRET", tmp_path / "secret.txt")
    assert load_release().rehearsal
    (tmp_path / "secret.txt").write_text("abc\n")
    assert (load_release().secret, load_release().rehearsal) == ("abc", False)


def test_a_new_secret_is_long_and_for_staff_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    monkeypatch.setattr(release, "SECRET", path)
    monkeypatch.setattr(commands, "SECRET", path)
    written = []
    monkeypatch.setattr(commands, "write_fixtures", lambda *arguments: written.append(arguments))
    told = [CliRunner().invoke(staff, ["fixtures", "--new-secret"]).output for _ in range(2)]
    assert "REHEARSAL" not in told[0]
    assert len(bytes.fromhex(path.read_text())) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert [folder for folder, *_ in written] == [release.FOLDER / "fixtures"] * 2, "the public cases stay"
    assert written[0][2]("softmax/1d") != written[1][2]("softmax/1d")
    both = CliRunner().invoke(staff, ["fixtures", "--new-secret", "--check"])
    assert "expected --check or --new-secret, got both" in both.output


@pytest.mark.slow
def test_hidden_cases_of_another_release_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("abc\n")
    monkeypatch.setattr(release, "SECRET", path)
    with pytest.raises(SuiteError, match=r"is not drawn from this release's secret; run `cs336 staff fixtures`"):
        load_graded_suite(ROOT)
