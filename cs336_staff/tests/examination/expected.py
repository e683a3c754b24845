"""What is expected of an examination: the table of findings of each misconception, and wrong programs of others."""

import importlib.util
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cs336_kit.engine.assignment import find_root

STAFF = find_root(Path(__file__).parent) / "cs336_staff"
# problem -> misconception -> the ids of its findings, in their order
EXPECTED: dict[str, dict[str, list[str]]] = tomllib.loads((STAFF / "authoring" / "expected_findings.toml").read_text())


def blind(program: str, adapter: str) -> Callable[..., Any]:
    """The adapter of a wrong program that was written without knowing the catalogue."""
    path = STAFF / "tests" / "blind" / "first" / f"{program}.py"
    spec = importlib.util.spec_from_file_location(program.replace("-", "_"), path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, adapter)
