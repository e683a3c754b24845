"""A copy with probes does what the code does: the same result or error, the same side effects and output."""

import ast
import atexit
import importlib
import inspect
import linecache
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import SourceLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import SUPPORTED_NODES

from staff.tests.files import write_files
from staff.tests.locate.constructs import control, gradients, objects, state, tensors
from staff.tests.specimens.specimen import SPECIMENS, Specimen, choose_tests
from whichline.engine.suite import Suite, Test
from whichline.locate.deadline import Deadline
from whichline.locate.instrument import instrument
from whichline.locate.observed import CannotFollowError, Observed, keep_state
from whichline.locate.probe import Recorder, TooLongError
from whichline_grader.authoring.programs import PLAIN, RIGHT_STYLES

CONSTRUCTS = [
    pytest.param(module, name, id=name)
    for module in (control, gradients, objects, state, tensors)
    for name, value in vars(module).items()
    if inspect.isfunction(value) and value.__module__ == module.__name__
    if all(each.default is not each.empty for each in inspect.signature(value).parameters.values())
]
OBSERVED = Observed(tensors, lambda file: "constructs" in file)


@pytest.mark.parametrize(("module", "name"), CONSTRUCTS)
def test_a_construct_does_the_same_with_probes(module: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    plain = attempt(getattr(module, name)), *capfd.readouterr()
    with OBSERVED.run(Recorder()):
        copy = importlib.import_module(module.__name__)
        assert copy is not module
        with_probes = attempt(getattr(copy, name)), *capfd.readouterr()
    assert (module.__file__, name) in OBSERVED.definitions
    assert is_same(with_probes, plain), f"with probes: {with_probes}\nplainly: {plain}"


def attempt(run: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "value", run()
    except BaseException as error:
        return "error", f"{type(error).__name__}: {error}"


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return (
            type(one) is type(other)
            and (one.shape, one.dtype, one.requires_grad) == (other.shape, other.dtype, other.requires_grad)
            and torch.equal(one.detach().nan_to_num(123), other.detach().nan_to_num(123))
        )
    if isinstance(one, tuple | list):
        return type(one).__name__ == type(other).__name__ and len(one) == len(other) and all(map(is_same, one, other))
    return type(one).__name__ == type(other).__name__ and (one == other or repr(one) == repr(other))


def compare_tests(suite: Suite, observed: Observed) -> list[str]:
    """The tests, of each kind one, of which the copy makes something else."""
    differ = []
    for test in {test.function: test for test in suite.tests if not test.memory}.values():
        suite.calls.adapters = observed.plain
        plain = run_test(suite, test)
        with observed.run(Recorder()):
            suite.calls.adapters = observed.adapters
            with_probes = run_test(suite, test)
        differ += [] if is_same(with_probes, plain) else [f"{test.name}: {plain} became {with_probes}"]
    return differ


def run_test(suite: Suite, test: Test) -> Any:
    with keep_state():
        torch.manual_seed(0)
        error = suite.ending(test)
    return error and (type(error).__name__, str(error), getattr(error, "answer", None))


@pytest.mark.nightly
@pytest.mark.parametrize("style", sorted(RIGHT_STYLES))
def test_a_right_program_does_the_same_with_probes(public: Suite, style: str) -> None:
    observed = Observed(SimpleNamespace(**RIGHT_STYLES[style]), lambda file: "right_programs" in file)
    assert observed.places
    assert compare_tests(public, observed) == []


@pytest.mark.nightly
@pytest.mark.parametrize("specimen", SPECIMENS, ids=str)
def test_a_wrong_program_does_the_same_with_probes(public: Suite, specimen: Specimen) -> None:
    adapters = specimen.adapters()
    observed = Observed(SimpleNamespace(**{**RIGHT_STYLES[PLAIN], **adapters}), lambda file: file == specimen.file)
    assert observed.places
    differ = compare_tests(choose_tests(public, adapters), observed)
    assert not differ or observed.imports > 1  # where something is kept, the order of the tests decides


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Observed]]:
    """A copy of some modules, which are imported before; `adapters` is what is called."""
    monkeypatch.syspath_prepend(tmp_path)
    before = {*sys.modules} - {"adapters"}
    monkeypatch.delitem(sys.modules, "adapters", raising=False)  # another test's

    def write(**sources: str) -> Observed:
        write_files(tmp_path, {f"{name.replace('__', '/')}.py": source for name, source in sources.items()})
        return Observed(importlib.import_module("adapters"), lambda file: file.startswith(str(tmp_path)))

    yield write
    for name in {*sys.modules} - before:
        del sys.modules[name]


def run(observed: Observed) -> Any:
    with observed.run(Recorder()):
        return observed.adapters.run()


LATE = "def run():\n    import package.inner\n    from package import inner as same\n"
LATE += "    assert package.inner is same\n    return same.__name__, id(same), same.double(3)"


def test_what_is_imported_in_a_function_is_of_the_copy(write: Callable[..., Observed]) -> None:
    observed = write(adapters=LATE, package__inner="def double(x):\n    return 2 * x")
    plain = observed.plain.run()
    modules = {name: sys.modules[name] for name in ("adapters", "package", "package.inner")}
    with_probes = run(observed)
    assert (with_probes[0], with_probes[2]) == (plain[0], plain[2]) == ("package.inner", 6)
    assert with_probes[1] != plain[1]
    assert observed.plain.run() == plain
    assert {name: sys.modules[name] for name in modules} == modules
    assert vars(sys.modules["package"])["inner"] is modules["package.inner"]


def test_a_module_that_another_thread_imports_is_waited_for(write: Callable[..., Observed]) -> None:
    late = "def run():\n    import slow\n    return slow.N"
    observed = write(adapters=late, slow="import time\ntime.sleep(0.2)\nN = 1")
    with ThreadPoolExecutor() as threads:
        plain = threads.submit(observed.plain.run)
        while "slow" not in sys.modules:
            time.sleep(0.001)
        assert run(observed) == 1
        assert plain.result() == 1


SETTINGS = "import random, numpy, torch\nrandom.seed(1)\nnumpy.random.seed(1)\ntorch.manual_seed(1)\n"
SETTINGS += "torch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\ndef run():\n    return 1"


def test_settings_and_random_numbers_stay_as_they_are(write: Callable[..., Observed]) -> None:
    with keep_state():
        observed = write(adapters=SETTINGS)
    torch.manual_seed(2)
    before = random.getstate(), torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    run(observed)
    after = random.getstate(), torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
    assert all(map(is_same, before, after))


DRAWS = "import torch\ndef run():\n    torch.manual_seed(5)\n"
DRAWS += "    return torch.nn.init.trunc_normal_(torch.empty(5, 3), std=0.5, a=-1), torch.rand(2)"


def test_initial_values_are_those_that_torch_draws(write: Callable[..., Observed]) -> None:
    observed = write(adapters=DRAWS)
    plain, first, again = observed.plain.run(), run(observed), run(observed)
    for given in (first, again):
        assert all(map(torch.equal, given, plain))
    assert first[0] is not again[0]


def test_a_run_ends_when_its_time_is_over(write: Callable[..., Observed]) -> None:
    observed = write(adapters="def run():\n    return 1 + 1")
    with pytest.raises(TooLongError), observed.run(Recorder(deadline=Deadline(0.0))):
        observed.adapters.run()


HANDLER = """import io, logging
OUT, LOG = io.StringIO(), logging.getLogger("adapters")
LOG.addHandler(logging.StreamHandler(OUT))
def run():
    OUT.truncate(OUT.seek(0))
    LOG.warning("seen")
    return OUT.getvalue()"""
HOOK = """import torch
class Layer(torch.nn.Module):
    def forward(self, x):
        return x * 2
def hook(module, given, named, came):
    return came + 1 if isinstance(module, Layer) else None
torch.nn.modules.module.register_module_forward_hook(hook, with_kwargs=True)
def run():
    return Layer()(torch.ones(1))"""
CONTAINER = """import fractions
from torch.utils import _pytree
class Pair:
    def __init__(self, *parts):
        self.parts = parts
_pytree.register_pytree_node(Pair, lambda x: (list(x.parts), None), lambda parts, _: Pair(*parts))
_pytree.register_pytree_node(
    fractions.Fraction, lambda x: ([x.numerator], x.denominator), lambda parts, below: fractions.Fraction(*parts, below)
)
def run():
    return _pytree.tree_map(lambda x: x * 2, Pair(1, fractions.Fraction(3, 8))).parts"""
OPERATOR = """import torch
@torch.library.custom_op("adapters::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
twice.register_autograd(lambda context, gradient: gradient * 2)
def run():
    x = torch.ones(2, requires_grad=True)
    y = twice(x) + torch.ops.adapters.twice(x)
    y.sum().backward()
    return y, x.grad"""
LIBRARY = """import torch
LIBRARY = torch.library.Library("adapters_library", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CPU")
torch.library.define("adapters_library::thrice", "(Tensor x) -> Tensor")
torch.library.impl("adapters_library::thrice", "cpu", lambda x: x * 3)
def run():
    x = torch.ones(2)
    return torch.ops.adapters_library.twice(x) + torch.ops.adapters_library.thrice(x)"""
AT_THE_END = "import atexit\n@atexit.register\ndef end():\n    pass\ndef run():\n    return end()"
REGISTERED = [HANDLER, HOOK, CONTAINER, OPERATOR, LIBRARY, AT_THE_END]


@pytest.mark.parametrize("code", REGISTERED, ids=["handler", "hook", "container", "operator", "library", "at the end"])
@pytest.mark.filterwarnings("error")
def test_what_code_registers_for_a_whole_process_is_registered_once(write: Callable[..., Observed], code: str) -> None:
    observed = write(adapters=code)
    hooks, containers = torch.nn.modules.module._global_forward_hooks, SUPPORTED_NODES
    handlers = logging.getLogger("adapters").handlers
    before = *handlers, *hooks.values(), *containers.values(), atexit._ncallbacks()
    with_probes = [run(observed) for _ in range(2)]
    assert (*handlers, *hooks.values(), *containers.values(), atexit._ncallbacks()) == before
    plain = observed.plain.run()
    assert all(is_same(each, plain) for each in with_probes)
    handlers.clear()
    for key in [key for key, hook in hooks.items() if hook.__module__ == "adapters"]:
        del hooks[key]
    for kind in [kind for kind, each in containers.items() if each.flatten_fn.__module__ == "adapters"]:
        del containers[kind]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("n = sys.seen = getattr(sys, 'seen', 0) + 1\n"
         "torch.library.define(f'adapters_new::f{n}', '(Tensor x) -> Tensor')",
         "RuntimeError: adapters_new::f2 is registered with torch, which it was not the first time"),
        ("assert not hasattr(sys, 'seen'); sys.seen = True", "AssertionError: "),
        ("sys.exit(3) if hasattr(sys, 'seen') else setattr(sys, 'seen', 1)", "SystemExit: 3"),
    ],
    ids=["an operator", "an assertion", "exit"],
)  # fmt: skip
def test_what_cannot_be_imported_twice_is_said(
    write: Callable[..., Observed], monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    monkeypatch.setattr(sys, "seen", 0, raising=False)
    monkeypatch.delattr(sys, "seen")
    observed = write(adapters=f"import sys, torch\n{line}\ndef run():\n    return 1")
    for _ in range(2):
        with pytest.raises(CannotFollowError) as raised:
            run(observed)
        assert str(raised.value) == f"the code cannot be imported a second time: {why}"


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("SEEN = []\ndef run():\n    SEEN.append(1)\n    return len(SEEN)", "SEEN"),
        ("class Layer:\n    made = 0\ndef run():\n    Layer.made += 1\n    return Layer.made", "Layer"),
        ("def run(n=[0]):\n    n[0] += 1\n    return n[0]", "run"),
        ("import torch\nX = torch.zeros(1)\ndef run():\n    X.add_(1)\n    return X.item()", "X"),
        ("N = 0\ndef run():\n    global N\n    N += 1\n    return N", "N"),
        ("import torch\nL = torch.nn.Linear(1, 1)\ndef run():\n    L.n = getattr(L, 'n', 0) + 1\n    return L.n", "L"),
    ],
    ids=["list", "class", "default", "tensor", "global", "module"],
)
def test_a_run_begins_with_nothing_that_another_has_left(write: Callable[..., Observed], code: str, kept: str) -> None:
    observed = write(adapters=code)
    assert [run(observed) for _ in range(3)] == [1, 1, 1]
    assert observed.find_kept() == [kept]
    with observed.keeping():
        assert [run(observed) for _ in range(3)] == [1, 2, 3]
    assert run(observed) == 1


def test_what_keeps_nothing_is_imported_once(write: Callable[..., Observed]) -> None:
    observed = write(adapters="import torch\nX = torch.ones(3)\ndef run():\n    return (X * 2).sum()")
    assert [run(observed).item() for _ in range(3)] == [6, 6, 6]
    assert (observed.imports, observed.is_stale) == (1, False)


def test_what_takes_long_is_not_imported_again(write: Callable[..., Observed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whichline.locate.observed.MOST_SECONDS", 0.0)
    observed = write(adapters="SEEN = []\ndef run():\n    SEEN.append(1)\n    return len(SEEN)")
    assert [run(observed), run(observed), observed.imports, observed.is_stale] == [1, 2, 1, True]


def test_what_others_hang_on_a_shared_context_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    class Large:
        def __deepcopy__(self, memo: object) -> "Large":
            raise AssertionError("a whole tree would be copied")

    context = ast.parse("x[0] = 1").body[0].targets[0].ctx  # type: ignore[attr-defined]
    monkeypatch.setattr(context, "parent", Large(), raising=False)
    probed = instrument("shared.py", "def f(x, i):\n    x[i + 1] = 2\n    x.y[i] += 1\n")
    assert [*map(str, probed.places)] == ["x[i + 1] = 2", "x.y[i] += 1"]


def test_of_a_cell_the_definitions_run_in_a_copy_of_its_names() -> None:
    source = "TRAINED.append(1)\ndef run():\n    KEPT.append(TRAINED[0])\n    return len(KEPT), len(TRAINED)\n"
    lines = [f"{line}\n" for line in source.splitlines()]
    linecache.cache["<cell>"] = len(source), None, lines, "<cell>"
    names: dict[str, Any] = {"__name__": "__main__", "TRAINED": [], "KEPT": []}
    exec(compile(source, "<cell>", "exec"), names)  # noqa: S102 (the cell above)
    observed = Observed(SimpleNamespace(run=names["run"]), lambda file: file == "<cell>", cell="<cell>")
    assert [run(observed), run(observed)] == [(1, 1), (1, 1)]
    assert (names["KEPT"], names["TRAINED"]) == ([], [1])


ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_values_are_kept_as_they_were_when_they_were_seen(write: Callable[..., Observed], device: str) -> None:
    observed, recorder = write(adapters="def run(x):\n    y = x * 2\n    y += 1\n    return y.sum()"), Recorder()
    with observed.run(recorder):
        came = observed.adapters.run(torch.ones(3, dtype=torch.bfloat16, device=device))
    assert (came.device.type, came.dtype) == (device, torch.bfloat16)
    kept = {str(place): values for place, values in recorder.values.items()}
    assert {name: [x.tolist() for x in values] for name, values in kept.items()} == {
        "x": [[1, 1, 1]],
        "x * 2": [[2, 2, 2]],
        "y += 1": [[3, 3, 3]],
        "y": [[3, 3, 3]],
        "y.sum()": [9],
    }
    assert {(x.device.type, x.dtype) for values in kept.values() for x in values} == {("cpu", torch.float64)}


class InMemory(SourceLoader):
    """A module that is in no file."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return spec_from_file_location(name, "/nowhere/adapters.py", loader=self) if name == "adapters" else None

    def get_filename(self, fullname: str) -> str:
        return "/nowhere/adapters.py"

    def get_data(self, path: str) -> bytes:
        return b"def run():\n    x = [0]\n    x[0] += 2\n    return x"


def test_a_module_in_memory_is_loaded_by_its_own_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "adapters", raising=False)
    monkeypatch.setattr(sys, "meta_path", [InMemory(), *sys.meta_path])
    observed = Observed(importlib.import_module("adapters"), lambda file: file.startswith("/nowhere"))
    assert run(observed) == [2]
    assert [str(place) for place in observed.places if place.in_place] == ["x[0] += 2"]
    del sys.modules["adapters"]
