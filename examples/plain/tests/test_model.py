"""An ordinary pytest suite: it knows nothing of the plugin."""

import pytest
import solution.model as right
import torch
import torch.nn.functional as F
from parts.model import (
    AdamW,
    attention,
    block,
    cross_entropy,
    lr_schedule,
    rmsnorm,
    rope,
    self_attention,
    silu,
    softmax,
    swiglu,
)


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def weights():
    square, norm = dict.fromkeys(("wq", "wk", "wv", "wo"), (8, 8)), {"ln1": (8,), "ln2": (8,)}
    shapes = {**norm, **square, "w1": (12, 8), "w2": (8, 12), "w3": (12, 8)}
    return {name: rand(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim):
    x = rand(3, 5, 4) * 3
    torch.testing.assert_close(softmax(x, dim), F.softmax(x, dim))
    torch.testing.assert_close(softmax(x + 1000, dim), F.softmax(x, dim), atol=1e-4, rtol=1e-3)


def test_rmsnorm():
    x, w = rand(2, 5, 8), rand(8, seed=1)
    torch.testing.assert_close(rmsnorm(x, w, 1e-2), F.rms_norm(x, (8,), w, 1e-2))


def test_silu():
    torch.testing.assert_close(silu(rand(3, 7)), F.silu(rand(3, 7)))


def test_swiglu(weights):
    x = rand(2, 5, 8, seed=9)
    out = swiglu(x, weights["w1"], weights["w2"], weights["w3"])
    torch.testing.assert_close(out, (F.silu(x @ weights["w1"].T) * (x @ weights["w3"].T)) @ weights["w2"].T)


def test_cross_entropy():
    logits, targets = rand(6, 9) * 5, torch.tensor([0, 3, 8, 2, 2, 5])
    torch.testing.assert_close(cross_entropy(logits, targets), F.cross_entropy(logits, targets))
    torch.testing.assert_close(cross_entropy(1000 * logits, targets), F.cross_entropy(1000 * logits, targets))


def test_rope():
    x, positions = rand(2, 3, 5, 8), torch.tensor([0, 2, 3, 7, 11])
    torch.testing.assert_close(rope(x, 100.0, positions), right.rope(x, 100.0, positions))


def test_attention():
    q, k, v = rand(2, 4, 6, seed=1), rand(2, 7, 6, seed=2), rand(2, 7, 5, seed=3)
    mask = rand(4, 7, seed=4) > -0.5
    torch.testing.assert_close(attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask))


def test_self_attention(weights):
    x = rand(2, 5, 8, seed=9)
    w = [weights[n] for n in ("wq", "wk", "wv", "wo")]
    torch.testing.assert_close(self_attention(x, *w, 2, 100.0), right.self_attention(x, *w, 2, 100.0))


def test_block(weights):
    x = rand(2, 5, 8, seed=9)
    torch.testing.assert_close(block(x, weights, 2, 100.0, 1e-5), right.block(x, weights, 2, 100.0, 1e-5))


def train(kind):
    p = torch.nn.Parameter(rand(4, 3))
    optimizer = kind([p], lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)
    for t in range(1, 6):
        p.grad = rand(4, 3, seed=t)
        optimizer.step()
    return p.detach()


def test_adamw():
    torch.testing.assert_close(train(AdamW), train(torch.optim.AdamW), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("t", [0, 3, 7, 10, 15, 20, 21, 30])
def test_lr_schedule(t):
    assert lr_schedule(t, 1.0, 0.1, 7, 21) == pytest.approx(right.lr_schedule(t, 1.0, 0.1, 7, 21))
