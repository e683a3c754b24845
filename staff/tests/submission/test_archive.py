"""Archives: the same bytes from the same files, and nothing believed of one that is read."""

import json
import stat
import zipfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from whichline.submission import archive
from whichline.submission.archive import ArchiveError, read_archive, write_archive

FILES = {"b/two.py": b"2\n", "a.py": b"1\n"}
PACKED = r"'a\.py' is neither stored nor deflated; make an ordinary zip archive"


def write_zip(path: Path, files: dict[str, bytes], manifest: object = None) -> None:
    """A zip as anybody may make one, by default with the manifest that it should have."""
    if manifest is None:
        manifest = {"files": {name: sha256(content).hexdigest() for name, content in files.items()}}
    with zipfile.ZipFile(path, "w") as zipped:
        for name, content in {**files, "m.json": json.dumps(manifest).encode()}.items():
            zipped.writestr(name, content)


def test_what_was_written_is_read_and_any_unzip_reads_it(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.zip", "m.json", {"version": "1"}, FILES)
    manifest, files = read_archive(tmp_path / "x.zip", "m.json")
    assert files == FILES
    assert manifest == {"version": "1", "files": {name: sha256(FILES[name]).hexdigest() for name in FILES}}
    with zipfile.ZipFile(tmp_path / "x.zip") as zipped:
        assert zipped.namelist() == ["a.py", "b/two.py", "m.json"]
        assert zipped.testzip() is None
        assert {entry.date_time for entry in zipped.infolist()} == {(1980, 1, 1, 0, 0, 0)}  # whenever it is made
        assert {stat.filemode(entry.external_attr >> 16) for entry in zipped.infolist()} == {"-rw-r--r--"}


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.zip", "m.json", {}, FILES)
    write_archive(tmp_path / "y.zip", "m.json", {}, dict(reversed(FILES.items())))
    assert (tmp_path / "x.zip").read_bytes() == (tmp_path / "y.zip").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.zip", "y.zip"]


def test_a_failure_to_write_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "x.zip").mkdir()
    with pytest.raises(ArchiveError, match=r"cannot write .*x\.zip: Is a directory"):
        write_archive(tmp_path / "x.zip", "m.json", {}, FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


@pytest.mark.parametrize(
    "name",
    [
        *("../a.py", "/a.py", "a/../../b.py", "./a.py", "a//b.py", "a/", "a.py.", "a./b.py", "..", "a b.py", "ä.py"),
        *("a\\b.py", "C:a.py", "a.py:stream", "CS336_~1/a.py", "a\n.py", ""),
    ],
)
def test_names_that_some_system_takes_for_others(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="is not a valid name in an archive"):
        write_archive(tmp_path / "x.zip", "m.json", {}, {name: b""})
    if name and "\\" not in name:  # zipfile itself turns these into others
        write_zip(tmp_path / "y.zip", {name: b""})
        with pytest.raises(ArchiveError, match="is not a valid name in an archive"):
            read_archive(tmp_path / "y.zip", "m.json")


@pytest.mark.parametrize(
    ("kind", "size", "compression", "message"),
    [
        (stat.S_IFREG, 0, zipfile.ZIP_STORED, r"lacks 'm\.json'; is it the right zip"),
        (stat.S_IFLNK, 9, zipfile.ZIP_STORED, r"holds a\.py, which is not a plain file"),
        (stat.S_IFREG, archive.MAX_BYTES + 1, zipfile.ZIP_DEFLATED, "holds more than 64 MiB"),
        (stat.S_IFREG, 1 << 20, zipfile.ZIP_BZIP2, PACKED),
        (stat.S_IFREG, 1 << 20, zipfile.ZIP_LZMA, PACKED),
    ],
    ids=["something else", "a link", "more than fits", "can only be unpacked whole", "as this one"],
)
def test_an_entry_that_is_refused(tmp_path: Path, kind: int, size: int, compression: int, message: str) -> None:
    entry = zipfile.ZipInfo("a.py")
    entry.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr(entry, bytes(size), compression)
    with pytest.raises(ArchiveError, match=message):
        read_archive(tmp_path / "x.zip", "m.json")


@pytest.mark.parametrize(
    ("files", "manifest", "words"),
    [
        (FILES, {"files": {}}, r"holds a\.py, which its m\.json does not list"),
        ({}, {"files": {"a.py": "0"}}, r"lacks a\.py, which its m\.json lists"),
        ({"a.py": b"1"}, {"files": {"a.py": "0"}}, r"a\.py in .*x\.zip is not the file that its m\.json lists"),
        ({}, {"files": {"\x1b[2J.py": "0"}}, r"'\\x1b\[2J\.py' is not a valid name in an archive"),
        ({"a.py": b"", "A.py": b""}, None, r"a\.py appears twice on systems that ignore"),
        ({}, {}, "lacks 'files'; is it the right zip"),
        ({}, [], "cannot be read; is it the right zip"),
        ({}, {"files": 3}, "cannot be read; is it the right zip"),
        ({}, {"files": [["a", []]]}, "lacks a, which its m.json lists"),
    ],
)
def test_a_manifest_that_does_not_fit(tmp_path: Path, files: dict[str, bytes], manifest: object, words: str) -> None:
    write_zip(tmp_path / "x.zip", files, manifest)
    with pytest.raises(ArchiveError, match=words):
        read_archive(tmp_path / "x.zip", "m.json")


def test_every_damaged_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    """No other exception than ours, and never other content."""
    path = tmp_path / "x.zip"
    write_archive(path, "m.json", {}, FILES)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with suppress(ArchiveError):
            assert read_archive(path, "m.json")[1] == FILES
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveError, match="not a zip file, or is a damaged one"):
            read_archive(path, "m.json")
