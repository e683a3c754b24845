"""Noticing that a file has been saved."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import watchfiles

from whichline.engine.assignment import PROBLEMS, list_own_folders

# Below the root: what students write and what the tests come from. Other folders may be large and change for other
# reasons (.venv, .git).
FOLDERS = (PROBLEMS, "fixtures", "tests")
SUFFIXES = (".py", ".toml", ".safetensors")

Stamp = tuple[int, int, int]


class Saves:
    """Finds what has been saved since the last look; a look is a few hundred calls of stat, about a millisecond."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stamps = self._stamps()

    def look(self) -> set[Path]:
        """The files, relative to the root, that are new, changed or gone since the last look."""
        before, self.stamps = self.stamps, self._stamps()
        return {Path(path).relative_to(self.root) for path, _ in before.items() ^ self.stamps.items()}

    def _stamps(self) -> dict[str, Stamp]:
        paths = (os.path.join(folder, name) for folder, names in _folders(self.root) for name in names)
        return {path: stamp for path in paths if path.endswith(SUFFIXES) and (stamp := _stamp(path))}


@contextmanager
def events(root: Path, look: Callable[[], None]) -> Iterator[None]:
    """Have `look` called, from another thread, soon after anything happens to a file.

    Some file systems hide some events or all of them: look now and then without being called, too.
    """
    stop = threading.Event()
    paths = [folder for folder, _ in _folders(root)]

    def watch() -> None:
        try:
            # Folders rather than files: editors save by renaming, and a watch of the file would stay with the old one.
            for _ in watchfiles.watch(*paths, watch_filter=None, step=5, recursive=False, stop_event=stop):
                look()
        except OSError:  # the system allows no more watches, or a folder has gone
            pass

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _folders(root: Path) -> Iterator[tuple[str, list[str]]]:
    """The root and every folder below it whose files count, with the names of those files."""
    _, _, names = next(os.walk(root))
    yield str(root), names
    for top in dict.fromkeys((*list_own_folders(root), *(root / name for name in FOLDERS))):
        for folder, _, names in os.walk(top):
            yield folder, names


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:  # gone since it was listed
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
