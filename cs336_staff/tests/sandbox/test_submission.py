"""What is taken in, and what is refused and why."""

import io
import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from cs336_staff.sandbox import submission
from cs336_staff.sandbox.submission import Refused, take_in

FLAT = {"adapters.py": "a = 1", "cs336_basics/nn.py": "b = 2"}
CS336 = {"tests/adapters.py": "a = 1", "tests/common.py": "", "cs336_basics/nn.py": "b = 2"}


def folder(at: Path, files: dict[str, str]) -> Path:
    for path, source in files.items():
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(source)
    return at


def archive(at: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path := at / "handed-in.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for name, source in files.items():
            out.writestr(name, source)
    return path


def below(prefix: str, files: dict[str, str]) -> dict[str, str]:
    return {prefix + path: source for path, source in files.items()}


@pytest.mark.parametrize("make", [folder, archive])
@pytest.mark.parametrize("around", ["", "one/", "around/one/"])
@pytest.mark.parametrize(("files", "adapters"), [(FLAT, "adapters"), (CS336, "tests.adapters")])
def test_layouts(make: type, around: str, files: dict[str, str], adapters: str, tmp_path: Path) -> None:
    taken = take_in(make(tmp_path, below(around, files)))
    assert taken.adapters == adapters
    assert taken.files == {path: source.encode() for path, source in files.items()}


def test_one_folder_down_beside_others(tmp_path: Path) -> None:
    taken = take_in(folder(tmp_path, below("assignment1/", CS336) | {"assignment2/model.py": ""}))
    assert set(taken.files) == set(CS336)


def test_a_single_file_is_its_own_adapters(tmp_path: Path) -> None:
    path = folder(tmp_path, {"ada.py": "x = 1"}) / "ada.py"
    assert take_in(path) == submission.Submission("ada.py", {"adapters.py": b"x = 1"}, "adapters")


def test_the_same_content_has_the_same_hash(tmp_path: Path) -> None:
    first, second = take_in(folder(tmp_path / "a", FLAT)), take_in(archive(tmp_path, below("x/", FLAT)))
    assert first.sha256 == second.sha256
    assert first.sha256 != take_in(folder(tmp_path / "b", FLAT | {"c.py": ""})).sha256


def test_other_folders_and_files_are_left_out(tmp_path: Path) -> None:
    rest = {".git/hook.py": "", ".venv/lib/x.py": "", "venv/x.py": "", "data/train.txt": "", "a.ipynb": "", "x.so": ""}
    assert set(take_in(folder(tmp_path, FLAT | rest)).files) == set(FLAT)


@pytest.mark.parametrize(
    "name", ["../adapters.py", "a/../../adapters.py", "/adapters.py", "C:\\a.py", "..\\a.py", "//h/a.py"]
)
def test_paths_that_lead_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="expected paths inside the submission"):
        take_in(archive(tmp_path, FLAT | {name: ""}))
    assert os.listdir(tmp_path) == ["handed-in.zip"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_an_archive(kind: int, tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(archive(tmp_path, FLAT), "a") as out:
        out.writestr(info, "/etc/passwd")
    with pytest.raises(Refused, match="'link' is a link or a device"):
        take_in(tmp_path / "handed-in.zip")


def test_links_in_a_folder(tmp_path: Path) -> None:
    (folder(tmp_path, FLAT) / "secret.py").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match=r"'secret.py' is a link or a device"):
        take_in(tmp_path)


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    (folder(tmp_path / "a", FLAT) / "loop").symlink_to(tmp_path)
    assert set(take_in(tmp_path / "a").files) == set(FLAT)


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("cs336_basics"):  # root may read everything
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    folder(tmp_path, FLAT)
    (tmp_path / "cs336_basics").mkdir(exist_ok=True)
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match="cs336_basics"):
        take_in(tmp_path)


def test_a_bomb_by_ratio(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"expected an archive of source code, but \d+ bytes expand to 20971\d+"):
        take_in(archive(tmp_path, FLAT | {"zeros.bin": "0" * (20 << 20)}))


def test_a_bomb_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_SOURCE_BYTES", 100)
    for make in (folder, archive):
        with pytest.raises(Refused, match="hand in only your own code"):
            take_in(make(tmp_path, FLAT | {"big.py": "#" * 200}))


def test_a_bomb_by_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_ENTRIES", 10)
    with pytest.raises(Refused, match="at most 10 files, got 22"):
        take_in(archive(tmp_path, FLAT | {f"{n}.txt": "" for n in range(20)}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(archive(tmp_path, FLAT), "a") as out:
        out.writestr("adapters.py", "a = 2")
    with pytest.raises(Refused, match=r"has 'adapters.py' several times"):
        take_in(tmp_path / "handed-in.zip")


def patched(path: Path, offset: int, value: int) -> None:
    """Set two bytes at `offset` of each entry of the archive's directory."""
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02")
    while at >= 0:
        struct.pack_into("<H", data, at + offset, value)
        at = data.find(b"PK\x01\x02", at + 4)
    path.write_bytes(data)


def test_an_encrypted_archive(tmp_path: Path) -> None:
    patched(path := archive(tmp_path, FLAT), 8, 1)
    with pytest.raises(Refused, match="expected an archive without a password"):
        take_in(path)


def test_an_unknown_compression(tmp_path: Path) -> None:
    patched(path := archive(tmp_path, FLAT), 10, 99)
    with pytest.raises(Refused, match="expected a zip archive that can be read, got NotImplementedError"):
        take_in(path)


@pytest.mark.parametrize("end", [10, 60, 120])
def test_a_broken_archive(end: int, tmp_path: Path) -> None:
    path = archive(tmp_path, FLAT)
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(Refused, match="expected a zip archive that can be read, got BadZipFile"):
        take_in(path)


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = archive(tmp_path, FLAT)
    data = bytearray(path.read_bytes())
    data[45] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(Refused, match="expected a zip archive that can be read"):
        take_in(path)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = archive(tmp_path, FLAT | {"\u00e9\u00e9.py": ""})
    path.write_bytes(path.read_bytes().replace("\u00e9\u00e9".encode(), b"\xff\xff\xff\xff"))
    with pytest.raises(Refused, match="UnicodeDecodeError"):
        take_in(path)


@pytest.mark.parametrize("name", ["a\n.py", "\x1b[2J.py", "x" * 300 + ".py"])
def test_names_that_cannot_be_shown(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="expected printable paths of at most 240 characters"):
        take_in(archive(tmp_path, FLAT | {name: ""}))


def test_no_adapters(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"expected adapters.py, or tests/adapters.py, at the root"):
        take_in(folder(tmp_path, {"model.py": ""}))


def test_two_submissions_in_one(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there are adapters in 'a/', 'b/'"):
        take_in(folder(tmp_path, below("a/", FLAT) | below("b/", FLAT)))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="a path where nothing is"):
        take_in(tmp_path / "x")


def test_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(Refused, match="a device, pipe or socket"):
        take_in(tmp_path / "pipe.zip")


def test_windows_slashes(tmp_path: Path) -> None:
    data = io.BytesIO(archive(tmp_path, FLAT).read_bytes().replace(b"cs336_basics/nn", b"cs336_basics\\nn"))
    (tmp_path / "handed-in.zip").write_bytes(data.getvalue())
    assert set(take_in(tmp_path / "handed-in.zip").files) == set(FLAT)
