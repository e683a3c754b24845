"""The kit that is installed, and the kit in the folder of the assignment, a wheel in `kit/`."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from whichline.engine.errors import CourseworkError

WHEELS = "kit/*.whl"


def find_wheels(root: Path) -> list[Path]:
    """The wheels of the kit in this folder; none where the kit is source."""
    return sorted(root.glob(WHEELS))


def is_installed(wheel: Path) -> bool:
    """Tell whether Python has this version of the kit."""
    try:
        distribution, its, *_ = wheel.name.split("-")
        return its == version(distribution)
    except PackageNotFoundError:
        return False


def read_version(package: str) -> str:
    """The version of the assignment's package; CourseworkError if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        what = f"the package {package} is not installed"
        raise CourseworkError(f"{what}: in its folder use `uv run`, or run  uv pip install --no-deps -e .") from None


def check_kit(folder: Path) -> None:
    """Raise CourseworkError if the kit of the assignment around `folder` is not installed; `uv run` installs it."""
    wheels = next(filter(None, map(find_wheels, (folder, *folder.parents))), [])
    if wheels and not any(map(is_installed, wheels)):
        raise CourseworkError(f'the kit of this folder is not installed: run  uv pip install "{wheels[-1]}"')
