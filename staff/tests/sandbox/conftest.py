"""A sandbox for each layer, and submissions written as strings that run in it."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from staff.tests import ROOT  # noqa: F401
from staff.tests.live import connect
from whichline_grader.sandbox import confinement as sandboxes
from whichline_grader.sandbox.limits import Limits
from whichline_grader.sandbox.submission import Submission

# It gives `Adapters` whose respondent is `Live`.
Run = Callable[..., Any]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What runs beside a submission is the same in every layer: a module's `LAYERS` says if fewer are enough."""
    if "sandbox" in metafunc.fixturenames:
        first, *others = getattr(metafunc.module, "LAYERS", ("bubblewrap", "process"))
        marks = () if metafunc.definition.get_closest_marker("every_layer") else (pytest.mark.nightly,)
        metafunc.parametrize("sandbox", [first, *(pytest.param(layer, marks=marks) for layer in others)], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A sandbox takes seconds to start, and hundreds of tests use one."""
    for item in items:
        if "sandbox" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


def returning(expression: str, top: str = "") -> str:
    """A submission whose `run_softmax` returns this."""
    imports = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
    return f"{imports}{top}\ndef run_softmax(x, dim):\n    return {expression}\n"


def start(layer: sandboxes.Layer) -> sandboxes.Sandbox:
    """Start `layer`, or skip where it does not work; CI must not skip."""
    try:
        return sandboxes.start(layer)
    except sandboxes.SandboxError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no {layer} here: {error}")


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Iterator[sandboxes.Sandbox]:
    with start(request.param) as sandbox:
        yield sandbox


@pytest.fixture
def run(sandbox: sandboxes.Sandbox) -> Iterator[Run]:
    """`run(source_or_files, **limits)`: the proxy module of a submission."""
    asked: list[Any] = []

    def run(files: str | dict[str, str], **limits: float) -> Any:
        files = {"adapters.py": files} if isinstance(files, str) else files
        sources = {path: source.encode() for path, source in files.items()}
        module = connect(sandbox, Submission("test", sources, "adapters"), Limits(**limits))  # type: ignore[arg-type]
        asked.append(module.respondent)
        return module

    yield run
    for each in asked:
        each.interview.end_worker()
