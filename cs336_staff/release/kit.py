"""The kit as one wheel, which students get in the place of its sources.

Its bytes follow from what is in it, and so does its version: uv takes two wheels of one version for the same.
"""

import base64
import io
import tomllib
from collections.abc import Mapping
from hashlib import sha256

from cs336_kit.handing_in.archive import pack

SOURCES = "cs336_kit/"
DIGITS = 10  # of the number that makes a version the wheel's own


def make_wheel(version: str, project: bytes, sources: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Make the wheel, and return its name in the handout and its bytes.

    Args:
        version: of the handout; the wheel's begins with it.
        project: `pyproject.toml`, which says what the kit needs and which commands it has.
        sources: the files of the kit, by name.
    """
    stated = tomllib.loads(project.decode())["project"]
    unnumbered = repr(sorted(_entries(version, stated, sources).items())).encode()
    number = int(sha256(unnumbered).hexdigest(), 16) % 10**DIGITS
    version = f"{version}.post{number:0{DIGITS}d}"
    wheel = io.BytesIO()
    pack(wheel, _entries(version, stated, sources))
    return f"kit/cs336_kit-{version}-py3-none-any.whl", wheel.getvalue()


def _entries(version: str, stated: Mapping, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of the wheel, by name."""
    about = f"cs336_kit-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {package}\n" for package in stated["dependencies"])
    python = f"Requires-Python: {stated['requires-python']}\n"
    commands = "".join(f"{name} = {place}\n" for name, place in stated["scripts"].items())
    texts = {
        "METADATA": f"Metadata-Version: 2.3\nName: cs336-kit\nVersion: {version}\n{python}{needs}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: cs336\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[console_scripts]\n{commands}",
    }
    entries = {**sources, **{f"{about}/{name}": text.encode() for name, text in texts.items()}}
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in sorted(entries.items()))
    return entries | {f"{about}/RECORD": f"{record}{about}/RECORD,,\n".encode()}


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
