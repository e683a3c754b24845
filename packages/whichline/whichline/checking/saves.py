"""Notice that a file has been saved."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import watchfiles

from whichline.engine.assignment import PROBLEMS, list_own_folders

# The folders of the tests, beside the student's own. Others, such as .venv and .git, may be large and change often.
FOLDERS = (PROBLEMS, "fixtures", "tests")
SUFFIXES = (".py", ".toml", ".safetensors")

Stamp = tuple[int, int, int]


class Saves:
    """Finds the files that were saved since the last look; a look takes a few hundred calls of stat, or 1 ms."""

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
    """Call `look`, from another thread, soon after anything happens to a file.

    Some file systems do not report all events, so the caller must also look from time to time.
    """
    stop = threading.Event()
    paths = [folder for folder, _ in _folders(root)]

    def watch() -> None:
        try:
            # Watch folders, not files: an editor saves by renaming, and the watch would stay with the old file.
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
    """The root and every folder below it that is watched, with the names of its files."""
    _, _, names = next(os.walk(root))
    yield str(root), names
    for top in dict.fromkeys((*list_own_folders(root), *(root / name for name in FOLDERS))):
        for folder, _, names in os.walk(top):
            yield folder, names


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:  # it was deleted after it was listed
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
