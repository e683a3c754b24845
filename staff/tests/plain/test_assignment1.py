"""The solution of CS336's assignment 1 in the examples is right, by this course's own tests, by torch, and by parts."""

import math
import re
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from staff.tests import ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.suite import load_suite


@pytest.fixture(name="solution", scope="module")
def import_solution() -> SimpleNamespace:
    return SimpleNamespace(**run_path(f"{ROOT}/examples/assignment1/solution/adapters.py"))


@pytest.mark.parametrize(
    "problem", ["softmax", "scaled_dot_product_attention", "linear", "rope", "multihead_self_attention"]
)
def test_the_tests_of_this_course_pass(solution: SimpleNamespace, problem: str) -> None:
    suite = load_suite(ROOT, [ROOT / "tests"], load_problems(ROOT), adapters=solution)
    results = [suite.run(test) for test in suite.tests if test.problem == problem]
    failed = [each.test for each in results if not each.passed]
    more = "half_precision|nothing.to.attend.to"  # CS336 asks for neither
    assert results
    assert [name for name in failed if not re.search(more, name)] == []


@pytest.fixture(name="weights")
def draw_weights() -> dict[str, Tensor]:
    """The weights of two blocks with the names of CS336's, for `d_model` 8 and `d_ff` 12."""
    attention = {f"attn.{name}_proj.weight": (8, 8) for name in ("q", "k", "v", "output")}
    ffn = {"ffn.w1.weight": (12, 8), "ffn.w2.weight": (8, 12), "ffn.w3.weight": (12, 8)}
    block = {"ln1.weight": (8,), "ln2.weight": (8,), **attention, **ffn}
    whole = {"token_embeddings.weight": (20, 8), "ln_final.weight": (8,), "lm_head.weight": (20, 8)}
    shapes = {**whole, **{f"layers.{layer}.{name}": shape for layer in (0, 1) for name, shape in block.items()}}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def test_a_language_model_is_its_parts(solution: SimpleNamespace, weights: dict[str, Tensor]) -> None:
    parts = SimpleNamespace(**run_path(f"{ROOT}/examples/plain/solution/model.py"))
    tokens = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    short = {"output_proj": "wo", **{f"{name}_proj": f"w{name}" for name in "qkv"}}
    x = F.embedding(tokens, weights["token_embeddings.weight"])
    for layer in (0, 1):
        own = {name.split(".")[-2]: x for name, x in weights.items() if name.startswith(f"layers.{layer}.")}
        x = parts.block(x, {short.get(name, name): each for name, each in own.items()}, 2, 10000.0, 1e-5)
    expected = F.rms_norm(x, (8,), weights["ln_final.weight"], 1e-5) @ weights["lm_head.weight"].T
    torch.testing.assert_close(solution.run_transformer_lm(20, 5, 8, 2, 2, 12, 10000.0, weights, tokens), expected)


def test_losses_and_clipping_are_those_of_torch(solution: SimpleNamespace) -> None:
    logits, targets = torch.randn(6, 9) * 5, torch.tensor([0, 3, 8, 2, 2, 5])
    torch.testing.assert_close(solution.run_cross_entropy(logits, targets), F.cross_entropy(logits, targets))
    ours, theirs = ([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2), requires_grad=False)] for _ in range(2))
    for parameters, clip in ((ours, solution.run_gradient_clipping), (theirs, nn.utils.clip_grad_norm_)):
        parameters[0].grad = torch.tensor([3.0, -4.0, 12.0])
        clip(parameters, 0.5)
    torch.testing.assert_close(ours[0].grad, theirs[0].grad)


def train(optimizer: Any, model: nn.Linear, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.linspace(step, 1, 3)).square().sum().backward()
        optimizer.step()


def test_a_checkpoint_continues_as_torch_would(solution: SimpleNamespace, tmp_path: Path) -> None:
    """AdamW takes the steps of torch's, also after its state was saved and loaded."""
    ours, theirs, loaded = (nn.Linear(3, 2) for _ in range(3))
    theirs.load_state_dict(ours.state_dict())
    make = solution.get_adamw_cls()
    optimizer, right = make(ours.parameters(), lr=0.01), torch.optim.AdamW(theirs.parameters(), lr=0.01)
    train(optimizer, ours, 3)
    solution.run_save_checkpoint(ours, optimizer, 3, tmp_path / "model.pt")
    again = make(loaded.parameters(), lr=0.01)
    assert solution.run_load_checkpoint(tmp_path / "model.pt", loaded, again) == 3
    train(again, loaded, 3)
    train(right, theirs, 3)
    train(right, theirs, 3)
    torch.testing.assert_close(loaded.state_dict(), theirs.state_dict(), atol=1e-4, rtol=1e-4)


def test_a_batch_is_cut_from_the_data(solution: SimpleNamespace) -> None:
    inputs, targets = solution.run_get_batch(np.arange(50), 500, 7, "cpu")
    assert inputs.shape == targets.shape == (500, 7)
    assert torch.equal(inputs + 1, targets)
    assert (int(inputs.min()), int(targets.max())) == (0, 49)


def test_the_learning_rate_warms_up_and_falls(solution: SimpleNamespace) -> None:
    rates = [solution.run_get_lr_cosine_schedule(it, 1.0, 0.1, 4, 8) for it in range(10)]
    half = 0.1 + 0.45 * (1 + math.cos(math.pi / 4))
    assert rates == pytest.approx([0, 0.25, 0.5, 0.75, 1, half, 0.55, 1.1 - half, 0.1, 0.1])
