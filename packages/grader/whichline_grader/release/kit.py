"""The kit as one wheel, which students get in the place of its sources: the engine, and what ships of the problems.

Its bytes follow from what is in it, and so does its version: uv takes two wheels of one version for the same.
"""

import base64
import io
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import requires

from whichline.submission.archive import pack
from whichline_grader.paths import ENGINE

DIGITS = 10  # of the number that makes a version the wheel's own


def make_wheel(command: str, version: str, python: str, sources: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Make the wheel of an assignment for some versions of Python; return its name in the handout and its bytes."""
    engine = *ENGINE.rglob("*.py"), ENGINE / "py.typed"
    sources = {**sources, **{path.relative_to(ENGINE.parent).as_posix(): path.read_bytes() for path in engine}}
    unnumbered = repr(sorted(_list_entries(command, version, python, sources).items())).encode()
    number = int(sha256(unnumbered).hexdigest(), 16) % 10**DIGITS
    version = f"{version}.post{number:0{DIGITS}d}"
    wheel = io.BytesIO()
    pack(wheel, _list_entries(command, version, python, sources))
    return f"kit/{command}_kit-{version}-py3-none-any.whl", wheel.getvalue()


def _list_entries(command: str, version: str, python: str, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    about = f"{command}_kit-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {package}\n" for package in requires("whichline") or ())
    needs = f"Requires-Python: {python}\n{needs}"
    texts = {
        "METADATA": f"Metadata-Version: 2.3\nName: {command}-kit\nVersion: {version}\n{needs}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: whichline\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[console_scripts]\n{command} = whichline.cli:main\n",
    }
    entries = {**sources, **{f"{about}/{name}": text.encode() for name, text in texts.items()}}
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in sorted(entries.items()))
    return entries | {f"{about}/RECORD": f"{record}{about}/RECORD,,\n".encode()}


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
