"""What students must write themselves is seen when it runs, whatever way it is called, and charged once."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional

from whichline.engine.assignment import load_problems
from whichline.rules.deductions import compute_deductions
from whichline.rules.forbidden import load_forbidden
from whichline.rules.watch import MAX_USES, Use
from whichline_grader.grading.one_submission import MAX_SHOWN, judge

from .conftest import ROOT, Run, returning

LAYERS = ("bubblewrap",)
PROBLEMS = load_problems(ROOT)
RULES = load_forbidden(ROOT / "assignment.toml")
ATTENTION, MULTIHEAD, BLOCKWISE = "scaled_dot_product_attention", "multihead_self_attention", "blockwise_attention"
BY_TORCH = f"nn.functional.{ATTENTION}"
ONE_HOT, EMBEDDING = "torch.nn.functional.one_hot", "torch.nn.Embedding"
DECOMPOSED = "torch._decomp.decompositions._softmax"
EINOPS, ONNX = "__import__('einops.layers.torch').layers.torch", "__import__('torch.onnx.ops').onnx.ops"
HANDOUT = (ROOT / "docs/assignment.md").read_text(encoding="utf-8")
OPS = "class Ops:\n    def softmax(self, x, dim): return x.exp() / x.exp().sum(dim, keepdim=True)\n"
HIDING = """
from concurrent.futures import ThreadPoolExecutor
from torch.nested import nested_tensor
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
class Unwatched(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), more=None):
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(more or {}))
"""


def seen(run: Run, source: str | dict[str, str], gradient: bool = False) -> set[Use]:
    """What a call of `run_softmax` runs, and the backward pass after it."""
    adapters = run(source)
    x = torch.rand(2, 2, 4, 4, requires_grad=gradient)
    answer = adapters.run_softmax(x, -1)
    if gradient:
        torch.autograd.grad(answer.sum(), x)
    return adapters.respondent.forbidden


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("torch.softmax(x, dim)", "torch.softmax"),
        ("x.softmax(dim)", "torch.Tensor.softmax"),
        ("getattr(torch, 'soft' + 'max')(x, dim)", "torch.softmax"),
        ("F.softmin(-x, dim)", "torch.nn.functional.softmin"),
        ("nn.LogSoftmax(dim)(x).exp()", "torch.nn.LogSoftmax"),
        ("torch._softmax(x, dim, False)", "torch._softmax"),
        ("torch._C.TensorBase.softmax(x, dim)", "torch.ops.aten._softmax"),
        ("torch.ops.aten._softmax(x, dim, False)", "torch.ops.aten._softmax"),
        ("torch.ops.aten._softmax.default(x, dim, False)", "torch.ops.aten._softmax"),
        ("torch.ops.aten.linear(x, torch.ones(4, 4))", "torch.ops.aten.linear"),
        ("torch.vmap(lambda y: torch.softmax(y, 0))(x)", "torch.softmax"),
        ("eval('torch.softmax(x, dim)', globals(), dict(x=x, dim=dim))", "torch.softmax"),
        ("F.linear(x, torch.ones(4, 4))", "torch.nn.functional.linear"),
        ("nn.Linear(4, 4)(x)", "torch.nn.Linear"),
        ("nn.Sequential(nn.Identity(), nn.Tanh())(x)", "torch.nn.Tanh"),
        ("nn.LSTM(4, 4)(x[0])[0]", "torch.nn.LSTM"),
        ("nn.Conv1d(4, 4, 1)(x[0])", "torch.nn.Conv1d"),
        ("F.conv1d(x[0], torch.ones(4, 4, 1))", "torch.nn.functional.conv1d"),
        ("F.bilinear(x, x, torch.ones(4, 4, 4))", "torch.nn.functional.bilinear"),
        ("F.normalize(x.exp(), p=1.0, dim=dim)", "torch.nn.functional.normalize"),
        ("F.one_hot(x.long())", "torch.nn.functional.one_hot"),
        ("F.cross_entropy(x[0, 0], x[0, 0])", "torch.nn.functional.cross_entropy"),
        ("nn.Dropout(0.5)(x)", "torch.nn.Dropout"),
        ("F.relu(x, inplace=True)", "torch.nn.functional.relu"),  # it hands back its argument, but not as it was
        ("F.scaled_dot_product_attention(x, x, x)", "torch.nn.functional.scaled_dot_product_attention"),
        ("nn.MultiheadAttention(4, 2)(x[0], x[0], x[0])[0]", "torch.nn.MultiheadAttention"),
        (f"{ONNX}.attention(x, x, x)[0]", "torch.ops.onnx.Attention"),
        (f"{ONNX}.rotary_embedding(x, *[torch.ones(2, 4, 2)] * 2)", "torch.ops.onnx.RotaryEmbedding"),
        (f"{EINOPS}.EinMix('... a -> ... b', 'b a', a=4, b=4)(x)", "einops.layers.torch.EinMix"),
        ("torch.ops.aten._softmax.default.redispatch(CPU, x, dim, False)", "torch.ops.aten._softmax"),
        ("torch._C._jit_get_operation('aten::_softmax')[0](x, dim, False)", "torch.ops.aten._softmax"),
        ("torch._C._nn.cross_entropy_loss(x[0], x[0, :, 0].long())", "torch.ops.aten._log_softmax"),
        ("torch._C._sparse._sparse_softmax(x.to_sparse(), dim).to_dense()", "torch.sparse.softmax"),
        ("nested_tensor([x]).softmax(dim).unbind()[0]", "torch.Tensor.softmax"),
        ("torch.distributions.Categorical(logits=x).probs", "torch.nn.functional.softmax"),
        ("F.gumbel_softmax(x)", "torch.nn.functional.gumbel_softmax"),
        ("torch.distributions.transforms.SoftmaxTransform()(x)", "torch.distributions.SoftmaxTransform"),
        ("torch.special.log_softmax(x, dim).exp()", "torch.special.log_softmax"),
        ("torch.softmax(x.as_subclass(Unwatched), dim)", "torch.softmax"),
        ("torch._refs.softmax(x, dim)", "torch._refs.softmax"),
        (f"{DECOMPOSED}(x, dim, False)", DECOMPOSED),
        ("torch._decomp.decomposition_table[torch.ops.aten._softmax.default](x, dim, False)", DECOMPOSED),
        ("ThreadPoolExecutor(1).submit(torch.softmax, x, dim).result()", "torch.softmax"),
        ("ThreadPoolExecutor(1).submit(lambda: torch.softmax(x, dim)).result()", "torch.softmax"),
    ],
)
def test_a_call_is_seen_by_whatever_name_it_is_made(run: Run, expression: str, function: str) -> None:
    source = returning(expression, HIDING)
    assert seen(run, source) == {Use("adapters.py", source.count("\n"), function, f"return {expression}")}


@pytest.mark.parametrize(
    ("expression", "top"),
    [
        ("Ops().softmax(x, dim)", OPS),
        ("Mine()(x, dim)", OPS + "class Mine(Ops):\n    def __call__(self, x, dim): return super().softmax(x, dim)"),
        ("softmax(x, dim)", "try: softmax = lambda x, dim: x.exp()\nexcept ImportError: from torch import softmax"),
        ("torch.softmax(x, dim) if dim > 90 else x", ""),
        ("F.pad(x, (1, 1))", ""),
        ("nn.ZeroPad2d(1)(x)", ""),
        ("torch.stft(x[0, 0], 2, 1, return_complex=True).abs()", ""),  # it pads
        ("x", "def train(x):\n    return F.cross_entropy(nn.Linear(4, 4)(x), x)"),
        ("x", "torch.softmax(torch.ones(3), 0)"),  # when it is imported
        ("x if isinstance(x, nn.Linear) else x", ""),
        ("x @ nn.Linear(4, 4).weight.T", ""),  # which holds a weight
        ("Own(4, 4)(x)", "class Own(nn.Linear):\n    def forward(self, x): return x @ self.weight.T"),
        ("nn.Dropout(0.0)(x) + nn.Dropout(0.5).eval()(x)", ""),
        ("nn.Sequential(nn.Identity(), nn.ModuleList([nn.Identity()])[0])(x)", ""),
        ("nn.init.trunc_normal_(nn.Parameter(torch.empty(2, 2))) + x[0, 0, 0, 0]", ""),
        ("torch.exp(x - torch.logsumexp(x, dim, keepdim=True))", ""),
        ("x + torch.autograd.grad(torch.logsumexp(x, dim).sum(), x)[0]", ""),
        ("torch.tanh(x) + x.sigmoid() + torch.relu(x)", ""),
        ("torch.einsum('bhqd,bhkd->bhqk', x, x) + (x @ x.mT).cumsum(dim)", ""),
        (f"{EINOPS}.Rearrange('b h q d -> b q h d')(x)", ""),
    ],
)
def test_honest_code_is_not(run: Run, expression: str, top: str) -> None:
    assert seen(run, returning(expression, top), gradient=True) == set()


def test_what_the_backward_pass_runs_is_seen(run: Run) -> None:
    source = """import torch
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g): return torch.softmax(g, 0)
def run_softmax(x, dim): return Own.apply(x)
"""
    assert {use.number for use in seen(run, source, gradient=True)} == {6}


def test_many_uses_of_one_kind_do_not_crowd_out_another(run: Run) -> None:
    many = "".join(f"    torch.softmax(x, {n % 2})\n" for n in range(50))
    source = f"import torch\ndef run_softmax(x, dim):\n{many}    return torch.nn.functional.linear(x, x[0, 0])\n"
    found = [use.function for use in seen(run, source)]
    assert found.count("torch.softmax") == MAX_USES
    assert "torch.nn.functional.linear" in found


def use(function: str, number: int = 1, source: str = "source") -> Use:
    return Use("adapters.py", number, function, source)


@pytest.mark.parametrize(
    ("ran", "paid"),
    [
        # A work is paid for once, at the points of the problem whose work it is, by the first that runs it.
        (dict.fromkeys(PROBLEMS, "softmax"), {"softmax": {"softmax": 2}}),
        ({ATTENTION: "softmax", MULTIHEAD: "softmax"}, {ATTENTION: {"softmax": 2}}),
        ({"softmax": "softmax", ATTENTION: "nn.functional.softmin"}, {"softmax": {"softmax": 2}}),
        ({MULTIHEAD: "nn.Linear"}, {MULTIHEAD: {"linear": 1}}),
        ({MULTIHEAD: "softmax nn.Linear"}, {MULTIHEAD: {"linear": 1, "softmax": 2}}),
        ({MULTIHEAD: "nn.MultiheadAttention"}, {MULTIHEAD: {MULTIHEAD: 5}}),
        # A cheap problem does not buy a dear one, and none pays more than it is worth.
        ({"softmax": BY_TORCH, ATTENTION: BY_TORCH}, {"softmax": {ATTENTION: 2}, ATTENTION: {ATTENTION: 3}}),
        ({BLOCKWISE: BY_TORCH}, {BLOCKWISE: {ATTENTION: 3}}),
        # What does the work of no problem costs all points of the first that runs it.
        ({"linear": "nn.functional.one_hot", BLOCKWISE: "nn.functional.one_hot"}, {"linear": {ONE_HOT: 1}}),
        ({"rope": "nn.Embedding nn.functional.one_hot"}, {"rope": {EMBEDDING: 2}}),
    ],
)
def test_work_not_the_students_own_is_paid_for_once(ran: dict[str, str], paid: dict[str, dict[str, float]]) -> None:
    """Who pays what, if each of these problems runs these functions of torch."""
    works = {id: {RULES.name_work(f"torch.{each}") for each in ran.get(id, "").split()} for id in PROBLEMS}
    assert compute_deductions(works, {id: problem.points for id, problem in PROBLEMS.items()}) == paid


MANY = {use("torch.softmax", number) for number in range(1, 9)}
SHOWN = tuple(f"torch.softmax in adapters.py:{number}: source" for number in range(1, 9))


@pytest.mark.parametrize(
    ("public", "hidden", "told"),
    [
        # Few lines are shown, and none that only hidden inputs made run.
        (MANY, set(), {"softmax": SHOWN[:MAX_SHOWN]}),
        (set(), MANY, {"softmax": ("torch.softmax, in a hidden test",)}),
        ({use("torch.softmax", 7)}, MANY, {"softmax": SHOWN[6:7]}),
        # Hidden tests name one function at most that does the work of no problem.
        (set(), {use(ONE_HOT), use(EMBEDDING)}, {EMBEDDING: (f"{EMBEDDING}, in a hidden test",)}),
        ({use(ONE_HOT)}, {use(EMBEDDING)}, {ONE_HOT: (f"{ONE_HOT} in adapters.py:1: source",)}),
        # A worker can report no function and no line of its own.
        ({use("secret 0.123")}, set(), {}),
        ({use("torch.softmax", 123, "")}, set(), {"softmax": ("torch.softmax (on an unknown line)",)}),
    ],
)
def test_what_is_told_of_a_work(public: set[Use], hidden: set[Use], told: dict[str, tuple[str, ...]]) -> None:
    found = judge({"softmax": public, "linear": set()}, {"softmax": hidden, "linear": set()})
    assert found == ({"softmax": told} if told else {})


def test_the_list_follows_the_namespaces_of_torch() -> None:
    functions = [name for name in dir(functional) if isinstance(getattr(functional, name), type(functional.relu))]
    helpers = {"boolean_dispatch", "handle_torch_function", "assert_int_or_pair"}
    public = {name for name in functions if not name.startswith("_")} - helpers - {"pad"}
    assert {f"torch.nn.functional.{name}" for name in public} <= RULES.names
    classes = [name for name in dir(nn) if isinstance(getattr(nn, name), type)]
    layers = [name for name in classes if issubclass(getattr(nn, name), nn.Module)]
    allowed = {name for name in layers if name in RULES.allowed or "Pad" in name}
    assert {name for name in layers if f"torch.nn.{name}" not in RULES.names} == allowed
    assert len(allowed) == len(RULES.allowed) - 4 + 15  # Rearrange, Reduce, pad; and layers that pad
    assert {"torch.exp", "torch.einsum", "torch.logsumexp", "torch.tanh", "torch.ops.aten.exp"}.isdisjoint(RULES.names)


def test_the_handout_says_what_the_list_says() -> None:
    rule = HANDOUT.partition("Implement the core operations yourself")[2].partition("## 3 Attention")[0]
    for name in ("torch.nn.functional", "torch.onnx.ops", "EinMix", "nn.Dropout"):
        assert f"`{name}`" in rule
    for name in RULES.allowed:
        assert re.search(rf"`((nn|F)\.)?{re.escape(name)}`", rule), name


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nrun_softmax = torch.softmax",
        "import functools, torch\nrun_softmax = functools.partial(torch.softmax)",
        "import torch\nexec('def run_softmax(x, dim):\\n return torch.softmax(x, dim)')",
        "import torch\nrun_softmax = eval('lambda x, dim: torch.softmax(x, dim)')",
    ],
)
def test_a_function_without_a_line_of_the_submission_counts(run: Run, source: str) -> None:
    assert {use.function for use in seen(run, source)} == {"torch.softmax"}


def test_what_the_end_of_an_argument_runs_comes_too_late(run: Run) -> None:
    late = "out = torch.zeros_like(x)\n    import weakref\n"
    late += "    weakref.finalize(x, lambda y: out.copy_(torch.softmax(y, dim)), x.clone())\n    return out"
    assert not run(f"import torch\ndef run_softmax(x, dim):\n    {late}\n").run_softmax(torch.rand(3), -1).any()


@pytest.mark.parametrize(
    "again",
    [
        "importlib.reload(mine)",
        "importlib.import_module(forget('mine'))",
        "mine if exec(mine.__loader__.get_code('mine'), initializing(mine).__dict__) is None else mine",
    ],
)
def test_a_file_that_is_imported_by_each_call_is_a_part_of_it(run: Run, again: str) -> None:
    files = {
        "adapters.py": "import importlib, shared, sys\n"
        "def forget(name):\n    sys.modules.pop(name)\n    return name\n"
        "def initializing(module):\n    module.__spec__._initializing = True\n    return module\n"
        f"def run_softmax(x, dim):\n    shared.x = x\n    import mine\n    return ({again}).answer\n",
        "mine.py": "import shared, torch\nanswer = torch.softmax(shared.x, -1)\n",
        "shared.py": "",
    }
    assert seen(run, files) == {Use("mine.py", 2, "torch.softmax", "answer = torch.softmax(shared.x, -1)")}


def test_the_top_of_a_file_that_an_adapter_imports_is_no_part_of_a_call(run: Run) -> None:
    files = {
        "adapters.py": "def run_softmax(x, dim):\n    from mine import softmax\n    return softmax(x, dim)\n",
        "mine.py": "import torch\ndef softmax(x, dim):\n    return x\ntorch.softmax(torch.ones(3), 0)\n",
    }
    assert seen(run, files) == set()
