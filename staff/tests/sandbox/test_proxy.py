"""What a test sees through the proxy is what it would see from the student's own `adapters`."""

import inspect
import random

import numpy as np
import pytest
import torch

from whichline.engine.errors import StudentRaised
from whichline.engine.failure import describe
from whichline.engine.result import Check
from whichline_grader.sandbox.proxy import Adapters
from whichline_grader.sandbox.reply import ProtocolViolation

from .conftest import ROOT, Run, returning

SOFTMAX = "import torch\ndef run_softmax(x, dim):\n    e = torch.exp(x)\n    return e / e.sum(dim, keepdim=True)\n"
DTYPES = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)
TENSORS = [torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype) for dtype in DTYPES]
REFUSED = {"x.numpy()": "numpy.ndarray", "x.to_sparse()": "torch.sparse_coo", "x.to('meta')": "on device meta"}
REFUSED |= {"torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)": "qint8", "torch.complex(x, x)": "complex64"}
REFUSED |= {"object()": "builtins.object"}
SLOW = {"torch._dynamo": "from torch.utils.checkpoint import checkpoint as f", "einx": "from einx import id as f"}
SLOW |= {"sympy": "", "torch.fx.experimental.symbolic_shapes": ""}


def test_functions_have_the_names_and_parameters_of_the_course(run: Run) -> None:
    adapters = run(SOFTMAX)
    assert str(inspect.signature(adapters.run_softmax)) == "(in_features, dim)"
    assert str(inspect.signature(adapters.run_scaled_dot_product_attention)) == "(Q, K, V, mask=None)"


@pytest.mark.parametrize("x", [*TENSORS, *(torch.zeros(shape) for shape in ((), (0,), (3, 0, 2)))])
def test_dtypes_and_small_shapes_survive(run: Run, x: torch.Tensor) -> None:
    answer = run(returning("x.clone()")).run_softmax(x, 0)
    assert (answer.dtype, answer.shape, answer.tolist()) == (x.dtype, x.shape, x.tolist())


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "text", [1, [None]], {"a": 1}])
def test_plain_values_survive(run: Run, value: object) -> None:
    assert run(returning(repr(value))).run_softmax(torch.zeros(1), 0) == value


def test_not_a_number_and_infinity_survive(run: Run) -> None:
    low, nan = run(returning("[float('-inf'), float('nan')]")).run_softmax(torch.zeros(1), 0)
    assert low == float("-inf")
    assert nan != nan


@pytest.mark.parametrize("expression", REFUSED)
def test_only_dense_tensors_come_back(run: Run, expression: str) -> None:
    with pytest.raises(StudentRaised, match=f"TypeError: expected .*{REFUSED[expression]}"):
        run(returning(expression)).run_softmax(torch.ones(2), 0)


def test_a_parameter_comes_back_as_a_tensor(run: Run) -> None:
    assert type(run(returning("torch.nn.Parameter(x)")).run_softmax(torch.ones(2), 0)) is torch.Tensor


def test_what_comes_back_is_contiguous_and_owns_its_memory(run: Run) -> None:
    y = run(returning("x.expand(3, 2).T")).run_softmax(torch.ones(2), 0)
    assert (y.is_contiguous(), y.shape) == (True, (2, 3))


def test_what_is_given_by_name_arrives_by_name_and_what_is_left_out_stays_so(run: Run) -> None:
    Q, K, V = torch.full((1,), 1.0), torch.full((1,), 2.0), torch.full((1,), 3.0)
    answer = "[Q.item(), K.item(), mask, [*rest]]"
    source = f"def run_scaled_dot_product_attention(K, Q, mask='its own', **rest):\n    return {answer}\n"
    attention = run(source).run_scaled_dot_product_attention
    assert attention(Q=Q, K=K, V=V) == [1, 2, "its own", ["V"]]
    assert attention(Q, K, V=V, mask=None) == [2, 1, None, ["V"]]
    with pytest.raises(StudentRaised, match="takes from 2 to 3 positional arguments but 4 were given"):
        attention(Q, K, V, None)


def test_what_no_adapter_takes_is_no_mistake_of_the_students(run: Run) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'axis'"):
        run(SOFTMAX).run_softmax(torch.ones(1), 0, axis=0)


def test_what_a_call_draws_is_random_unless_the_test_seeds_it(run: Run) -> None:
    drawing = "[torch.rand(()).item(), random.random(), numpy.random.rand()]"
    adapters = run("import random, numpy\n" + returning(drawing))

    def draw() -> list[float]:
        return adapters.run_softmax(torch.ones(1), 0)

    assert all(one != other for one, other in zip(draw(), draw(), strict=True))
    for number, seed in enumerate((torch.manual_seed, random.seed, np.random.seed)):
        seed(3)
        once = draw()
        seed(3)
        assert [one == other for one, other in zip(once, draw(), strict=True)] == [each == number for each in range(3)]


def test_strides_and_identity_go_over(run: Run) -> None:
    answer = "[Q is K, K is V, Q.stride(), mask.stride()]"
    source = f"def run_scaled_dot_product_attention(Q, K, V, mask):\n    return {answer}"
    x = torch.randn(3, 4).T
    mask = torch.ones(1, 3, dtype=torch.bool).expand(4, 3)
    assert run(source).run_scaled_dot_product_attention(x, x, x.clone(), mask) == [True, False, [1, 4], [0, 1]]


def test_a_test_without_gradients_is_one_in_the_worker(run: Run) -> None:
    adapters = run(returning("[x.requires_grad, torch.is_grad_enabled()]"))
    x = torch.ones(2, requires_grad=True)
    assert adapters.run_softmax(x, 0) == [True, True]
    with torch.no_grad():
        assert adapters.run_softmax(x, 0) == [True, False]


def test_gradients(run: Run) -> None:
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: run(SOFTMAX).run_softmax(x, 1), x)


def test_gradients_are_none_where_the_graph_is_cut(run: Run) -> None:
    source = "def run_scaled_dot_product_attention(Q, K, V):\n    return Q * K.detach()"
    Q, K, V = (torch.ones(2, requires_grad=True) for _ in range(3))
    run(source).run_scaled_dot_product_attention(Q, K, V).sum().backward()
    torch.testing.assert_close(Q.grad, torch.ones(2), rtol=0, atol=0)
    assert (K.grad, V.grad) == (None, None)


def test_an_output_without_graph_requires_no_gradient(run: Run) -> None:
    assert not run(returning("x.detach() * 2")).run_softmax(torch.ones(2, requires_grad=True), 0).requires_grad


def test_arguments_are_left_as_the_call_left_them(run: Run) -> None:
    x, y = torch.ones(3), torch.ones(3)
    run("def run_scaled_dot_product_attention(Q, K, V):\n    Q.mul_(2)").run_scaled_dot_product_attention(x, y, y)
    assert torch.equal(x, torch.full((3,), 2.0))
    assert torch.equal(y, torch.ones(3))


def test_all_weights_of_a_model_go_over_and_come_back(run: Run) -> None:
    weights = {f"layer {number}": torch.full((2,), float(number), requires_grad=True) for number in range(111)}
    step = "def run_softmax(x, dim):\n    for w in x.values(): w.data += 1\n    return {k: 2 * w for k, w in x.items()}"
    doubled = run(step).run_softmax(weights, 0)
    torch.stack([*doubled.values()]).sum().backward()
    for number, (name, weight) in enumerate(weights.items()):
        assert (weight.tolist(), doubled[name].tolist()) == ([number + 1] * 2, [2 * number + 2] * 2)
        assert weight.grad is not None
        assert weight.grad.tolist() == [2, 2]


def test_an_answer_has_no_more_tensors_than_an_answer_can_need(run: Run) -> None:
    with pytest.raises(ProtocolViolation, match="expected at most 102 tensors, got 199"):
        run(returning("[x + i for i in range(199)]")).run_softmax(torch.ones(1), 0)


def test_arguments_that_change_their_shape(run: Run) -> None:
    with pytest.raises(StudentRaised, match=r"run_softmax changed an argument of shape \(3,\) in place, to \(1, 3\)"):
        run(returning("x.unsqueeze_(0)")).run_softmax(torch.ones(3), 0)


def test_an_exception_names_the_lines_of_the_student(run: Run) -> None:
    files = {
        "adapters.py": "from cs336_basics.nn import softmax\ndef run_softmax(x, dim):\n    return softmax(x, dim)\n",
        "cs336_basics/nn.py": "def softmax(x, dim):\n    x = x + 1\n    raise ValueError(f'no {dim}')\n",
    }
    with pytest.raises(StudentRaised) as caught:
        run(files).run_softmax(torch.ones(3), 0)
    raised = caught.value
    assert (raised.type, raised.message) == ("ValueError", "no 0")
    assert [(frame.filename, frame.lineno, frame.name, frame.line) for frame in raised.frames] == [
        ("adapters.py", 3, "run_softmax", "return softmax(x, dim)"),
        ("cs336_basics/nn.py", 3, "softmax", "raise ValueError(f'no {dim}')"),
    ]


@pytest.mark.parametrize(
    ("source", "place"),
    [("def run_softmax(x, dim):\n    raise NotImplementedError", "adapters.py:2"), ("", "adapters.py")],
)
def test_what_is_not_written_yet(run: Run, source: str, place: str) -> None:
    with pytest.raises(StudentRaised) as caught:
        run(source).run_softmax(torch.ones(3), 0)
    failure = describe(caught.value, ROOT)
    said = f"not implemented yet: write run_softmax in {place}"
    assert (failure.check, failure.headline) == (Check.NOT_WRITTEN, said)


@pytest.mark.parametrize("error", ["SystemExit(0)", "KeyboardInterrupt", "GeneratorExit", "BaseException('x')"])
def test_exceptions_of_every_kind_are_the_students(run: Run, error: str) -> None:
    with pytest.raises(StudentRaised, match=error.partition("(")[0]):
        run(f"def run_softmax(x, dim):\n    raise {error}").run_softmax(torch.ones(3), 0)


def test_the_packages_that_students_may_import(run: Run) -> None:
    imports = "import torch, einops, einx, jaxtyping, numpy, regex, tiktoken, tqdm, psutil, dataclasses, sqlite3\n"
    adapters = run(imports + SOFTMAX)
    adapters.run_softmax(torch.ones(1), 0)
    assert adapters.respondent.missing == set()


@pytest.mark.parametrize(("module", "use"), SLOW.items())
def test_what_takes_seconds_to_import_is_there_before_the_submission(run: Run, module: str, use: str) -> None:
    adapters = run(f"import sys\nthere = {module!r} in sys.modules\n{use}\ndef run_softmax(x, dim): return there")
    assert adapters.run_softmax(torch.ones(1), 0) is True


def test_a_checkpoint_works_in_little_memory(run: Run) -> None:
    adapters = run("from torch.utils.checkpoint import checkpoint\n" + returning("checkpoint(torch.exp, x)"))
    adapters.respondent.memory = 64 << 20
    assert adapters.run_softmax(torch.zeros(1), 0).tolist() == [1]


def test_what_a_file_changes_for_all_code_is_undone_as_at_home(run: Run) -> None:
    changes = "torch.set_grad_enabled(False); torch.set_default_dtype(torch.float64); torch.set_default_device('meta')"
    adapters = run(f"import torch\n{changes}\n" + returning("torch.ones(1).requires_grad_() * 2"))
    answer = adapters.run_softmax(torch.ones(1), 0)
    assert (answer.dtype, answer.device.type) == (torch.float32, "cpu")


def test_wrong_annotations_do_no_harm(run: Run) -> None:
    source = """
import torch
from jaxtyping import Float, jaxtyped
from torch import Tensor
@jaxtyped(typechecker=None)
def run_softmax(x: Float[Tensor, "a b c"], dim) -> Float[Tensor, "d"]:
    return x * 2
"""
    assert run(source).run_softmax(torch.ones(2), 0).tolist() == [2, 2]


def test_printed_text_is_kept_and_cleaned(run: Run) -> None:
    adapters = run("import sys\ndef run_softmax(x, dim):\n    print('\\x1b[2Jhello')\n    sys.stderr.write('oh\\n')")
    adapters.run_softmax(torch.ones(1), 0)
    assert adapters.respondent.printed == ("\ufffd[2Jhello\n", "oh\n")


def test_what_is_forbidden_still_computes(run: Run) -> None:
    adapters = run(returning("[torch.softmax(x, dim), torch.nn.Linear(2, 3, bias=False)(x).sum()]"))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    softmax, total = adapters.run_softmax(x, 0)
    torch.testing.assert_close(softmax, torch.softmax(x, 0))
    (gradient,) = torch.autograd.grad(softmax[0] + 0 * total, x)
    torch.testing.assert_close(gradient, torch.autograd.grad(torch.softmax(x, 0)[0], x)[0])


def test_a_proxy_without_anybody_to_ask_says_so() -> None:
    with pytest.raises(RuntimeError, match="expected a respondent"):
        Adapters(ROOT / "adapters.py").run_softmax(torch.ones(1), 0)


def test_what_students_read_does_not_say_where_packages_lie(run: Run) -> None:
    adapters = run("import torch\ndef run_softmax(x, dim):\n    torch.meshgrid(x, x)\n    open(torch.__file__ + 'x')\n")
    with pytest.raises(StudentRaised, match=r"No such file or directory: 'torch/__init__\.pyx'"):
        adapters.run_softmax(torch.ones(2), 0)
    assert adapters.respondent.printed[1].startswith("torch/functional.py:")
