"""Zip archives with a manifest. The same content gives the same bytes, and an archive is checked before it is used.

The manifest is a JSON object. Its "files" maps the name of each file in the archive to its sha256.
"""

import json
import os
import re
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from whichline.engine.errors import CourseworkError

MAX_BYTES = 64 * 2**20  # of all unpacked files together
PIECE = 2**16  # bytes that one read unpacks; zipfile respects this for entries that are stored or deflated

# Names of the same file on every system: plain letters, no "..", no drive, no "~1", no full stop at the end.
NAME = re.compile(r"(?!.*\.(/|$))[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")


class ArchiveError(CourseworkError):
    """An archive cannot be read or written; the message says why."""


def write_archive(
    path: Path, manifest_name: str, manifest: Mapping[str, Any], files: Mapping[str, bytes], top: str = ""
) -> None:
    """Write `files` and the manifest, which gets "files"; `path` is replaced as a whole or not at all.

    If `top`, such as "assignment/", is given, everything lies in this folder. ArchiveError if not every system can
    store one of the names, or the disk is full or read-only.
    """
    check_names(list(files))
    manifest = {**manifest, "files": {name: sha256(files[name]).hexdigest() for name in sorted(files)}}
    entries = {manifest_name: (json.dumps(manifest, indent=2) + "\n").encode(), **files}
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            unfinished = Path(folder) / path.name
            with unfinished.open("wb") as file:
                pack(file, {top + name: content for name, content in entries.items()})
            os.replace(unfinished, path)
    except OSError as error:
        raise ArchiveError(f"cannot write {path}: {error.strerror}") from None


def pack(file: IO[bytes], entries: Mapping[str, bytes]) -> None:
    """Write a zip; the same entries give the same bytes on every machine, at any time."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:  # versions of zlib compress to different bytes
        for name in sorted(entries):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, also when Windows writes
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, entries[name])


def read_archive(path: Path, manifest_name: str, top: str = "") -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read the manifest and the files, which lie in the folder `top`.

    ArchiveError if it is no zip, is damaged or too large, has unsafe names, or differs from its manifest.
    """
    files: dict[str, bytes] = {}
    left = MAX_BYTES
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            check_names([entry.filename for entry in entries])
            for entry in entries:
                if entry.external_attr >> 28 not in (0, 0o10):
                    raise ArchiveError(f"{path} holds {entry.filename}, which is not a plain file")
                files[entry.filename.removeprefix(top)] = content = read_entry(archive, entry, left)
                left -= len(content)
                if left < 0:
                    raise ArchiveError(f"{path} holds more than {MAX_BYTES >> 20} MiB")
    except OSError as error:
        raise ArchiveError(f"cannot read {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArchiveError(f"{path} is not a zip file, or is a damaged one: {error}") from None
    return _check_manifest(path, manifest_name, files)


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """Read at most `most` + 1 bytes of an entry; ArchiveError if it is encrypted, or a read of it has no limit."""
    if entry.flag_bits & 1:
        raise ArchiveError(f"{entry.filename!r} is encrypted; make the archive without a password")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError(f"{entry.filename!r} is neither stored nor deflated; make an ordinary zip archive")
    content = bytearray()
    with archive.open(entry) as file:
        while piece := file.read(min(PIECE, most + 1 - len(content))):
            content += piece
    return bytes(content)


def check_names(names: list[str]) -> None:
    """Raise `ArchiveError` unless every system can store files of these names side by side."""
    for name in names:
        if not NAME.fullmatch(name):
            raise ArchiveError(f"{name!r} is not a valid name in an archive: use letters, digits, _ - . and /")
    count = Counter(name.casefold() for name in names)
    if twice := [name for name in names if count[name.casefold()] > 1]:
        raise ArchiveError(f"{twice[0]} appears twice on systems that ignore upper and lower case")


def _check_manifest(path: Path, name: str, files: dict[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    try:
        manifest = json.loads(files.pop(name))
        digests = dict(manifest["files"])
    except KeyError as error:
        raise ArchiveError(f"{path} lacks {error}; is it the right zip?") from None
    except (ValueError, TypeError, RecursionError):
        raise ArchiveError(f"the {name} of {path} cannot be read; is it the right zip?") from None
    check_names([str(file) for file in digests])
    for file in sorted(digests.keys() | files.keys()):
        if file not in digests:
            raise ArchiveError(f"{path} holds {file}, which its {name} does not list")
        if file not in files:
            raise ArchiveError(f"{path} lacks {file}, which its {name} lists")
        if sha256(files[file]).hexdigest() != digests[file]:
            raise ArchiveError(f"{file} in {path} is not the file that its {name} lists")
    return manifest, files
