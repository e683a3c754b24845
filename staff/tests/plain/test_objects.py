"""Modules, optimisers and other objects under a plain suite: each call of a method is held against that of a twin."""

import pytest

from staff.tests.plain.test_plain import TABLE, run_suite

pytestmark = pytest.mark.slow

NAMES = '[tool.whichline.names]\nRenamed = "Doubled"\nweight_of_rows = "rows"\n'
CODE = """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
    def forward(self, x):
        rms = x.square().mean(-1, keepdim=True).sqrt()
        return x / rms + self.gain

class Pair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.linear = Scale(width), nn.Linear(width, width)
    def forward(self, x):
        return self.linear(self.scale(x))

class Positions(nn.Module):
    def __init__(self, width, longest):
        super().__init__()
        rates = 10.0 ** torch.arange(width)
        self.register_buffer("table", torch.outer(torch.arange(longest), rates).cos())
    def forward(self, x):
        return x + self.table[: len(x)]

class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum):
        super().__init__(params, {"lr": lr, "momentum": momentum})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                before = self.state[p].get("v", torch.zeros_like(p))
                v = (1 - group["momentum"]) * before + p.grad
                self.state[p]["v"] = v
                p -= group["lr"] * v

class Decay:
    def __init__(self, start, rate):
        self.start, self.rate, self.calls = start, rate, 0
    def step(self):
        self.calls += 1
        factor = self.rate ** (self.calls + 1)
        return self.start * factor

class Renamed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.columns = nn.Parameter(torch.ones(width))
        self.weight_of_rows = nn.Parameter(torch.ones(width, 1))
    def forward(self, x):
        return x * self.columns - self.weight_of_rows

class Short(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return x * self.weight

class Right(Short):
    def forward(self, x):
        return self.weight * x

class Warmup:
    def __init__(self, most):
        self.most, self.calls = most, 0
    def step(self):
        self.calls += 1
        return 0.37 * min(self.calls, self.most + 1)

class Words:
    def __init__(self, separator):
        self.separator = separator
    def join(self, words):
        if not words:
            return ""
        return self.separator.join(words[1:])

class Gain(nn.Module):
    def __init__(self, width, device=None):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width, device=device))
    def forward(self, x):
        return x * self.gain + 1

class Stepping:
    def __init__(self, params, rate):
        self.params, self.rate = list(params), rate
    def step(self):
        for p in self.params:
            self.move(p, p.grad)

class Descent(Stepping):
    def move(self, p, gradient):
        change = 2 * self.rate * gradient
        p -= change

class Stats:
    def __init__(self):
        self.count, self.mean = 0, 0.0
    def add(self, x, count):
        total = self.count + count
        self.mean = self.mean + (x - self.mean) * self.count / total
        self.count = total
        return self
    def read(self):
        return self.mean

class Table:
    def __init__(self):
        self.rows = []
    def fill(self, size):
        for row in range(size - 1):
            self.rows.append(row)

class Total:
    def __init__(self, share):
        self.share, self.total = share, 0.0
    def add(self, x):
        self.total += x
        return self.total + self.share

class Follow:
    def __init__(self, params):
        self.params = list(params)
        self.sums = [torch.zeros_like(p) for p in self.params]
        self.squares = [torch.zeros_like(p) for p in self.params]
    @torch.no_grad()
    def step(self, slopes):
        for p, slope, total, square in zip(self.params, slopes, self.sums, self.squares):
            more = square + slope * slope
            total += slope + (more.sqrt() - square.sqrt()) * p
            square.copy_(more)
            p.copy_(-total / (1 + square.sqrt()))

def get_total():
    return Total
"""
SOLUTION = """
import torch
import torch.nn.functional as F
from torch import nn

class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size))
    def forward(self, x):
        root = (x * x).mean(dim=-1, keepdim=True) ** 0.5
        return x / root * self.weight

class Pair(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.mix = Scale(size), nn.Linear(size, size)
    def forward(self, x):
        normed = self.norm(x)
        return F.linear(normed, self.mix.weight, self.mix.bias)

class Positions(nn.Module):
    def __init__(self, size, count):
        super().__init__()
        frequencies = 1 / 10.0 ** torch.arange(size)
        self.waves = torch.cos(torch.arange(count)[:, None] * frequencies)
    def forward(self, x):
        return self.waves[: x.shape[0]] + x

class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum):
        super().__init__(params, dict(lr=lr, momentum=momentum))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(p.grad)
                p.sub_(state["velocity"], alpha=group["lr"])

class Decay:
    def __init__(self, first, ratio):
        self.now, self.ratio = first, ratio
    def step(self):
        self.now = self.now * self.ratio
        return self.now

class Doubled(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.rows, self.columns = nn.Parameter(torch.ones(size, 1)), nn.Parameter(torch.ones(size))
    def forward(self, x):
        wide = x * self.columns
        return wide * self.rows

class Short(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.ones(size))
    def forward(self, x):
        return x * self.weight + self.bias

class Right(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(size))
    def forward(self, x):
        return x * self.gain

class Warmup:
    def __init__(self, last):
        self.last, self.count = last, 0
    def step(self):
        self.count = min(self.count + 1, self.last)
        return self.count * 0.37

class Words:
    def __init__(self, between):
        self.between = between
    def join(self, words):
        return self.between.join(words)

class Gain(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
    def forward(self, x):
        return self.weight * x

class Descent:
    def __init__(self, params, rate):
        self.params, self.rate = list(params), rate
    def step(self):
        for p in self.params:
            slope = self.rate * p.grad
            p -= slope

class Stats:
    def __init__(self):
        self.n, self.sum = 0, 0.0
    def add(self, x, count):
        self.sum += x * count
        self.n += count
        return self
    def read(self):
        return self.sum / self.n

class Table:
    def __init__(self):
        self.entries = {}
    def fill(self, size):
        self.entries = dict.fromkeys(range(size))

class _Sum:
    def __init__(self, share):
        self.numbers, self.share = [], share
    def add(self, x):
        self.numbers.append(x)
        return sum(self.numbers) * self.share

class Follow:
    def __init__(self, params):
        self.params = list(params)
        self.squares = [torch.zeros_like(p) for p in self.params]
        self.sums = [torch.zeros_like(p) for p in self.params]
    @torch.no_grad()
    def step(self, slopes):
        for i, p in enumerate(self.params):
            before = self.squares[i].sqrt()
            self.squares[i] = self.squares[i] + slopes[i] ** 2
            after = self.squares[i].sqrt()
            self.sums[i] = self.sums[i] + slopes[i] - p * (after - before)
            p[...] = -self.sums[i] / (1 + after)

def get_total():
    return _Sum
"""
TESTS = """
import pytest
import torch

import code_ as code

@pytest.fixture
def x():
    return torch.randn(3, 3, generator=torch.Generator().manual_seed(0))

def test_pair(x):
    pair = code.Pair(3)
    pair.scale.gain.data = torch.tensor([1.0, 2.0, -1.0])
    expected = pair.linear(torch.nn.functional.rms_norm(x, (3,), pair.scale.gain))
    assert torch.allclose(pair(x), expected)

def test_positions(x):
    assert torch.allclose(code.Positions(3, 8)(x)[2, 1] - x[2, 1], torch.tensor(0.2).cos())

def train(kind, x, **settings):
    p = torch.nn.Parameter(x.clone())
    optimizer = kind([p], lr=0.3, momentum=0.9)
    for _ in range(5):
        optimizer.zero_grad()
        (p**2).sum().backward()
        optimizer.step()
    return p.detach()

def test_momentum(x):
    assert torch.allclose(train(code.Momentum, x), train(torch.optim.SGD, x))

def test_decay():
    decay = code.Decay(8.0, 0.5)
    assert [decay.step(), decay.step()] == [4.0, 2.0]

def test_renamed(x):
    layer = code.Renamed(3)
    layer.weight_of_rows.data = x[:1].T
    layer.columns.data = x[1]
    assert torch.allclose(layer(x), x * x[1] * x[0][:, None])

def test_short(x):
    short = code.Short(3)
    short.weight.data.mul_(2)
    assert torch.equal(short(x), 2 * x + 1)

def test_right(x):
    assert torch.equal(code.Right(3)(x), x + 1)

def test_warmup():
    warmup = code.Warmup(80)
    assert [warmup.step() for _ in range(100)][-1] == 80 * 0.37

def test_words():
    assert code.Words("-").join(["a", "b", "c"]) == "a-b-c"

def test_gain(x):
    torch.testing.assert_close(code.Gain(3)(x), x)

def test_descent():
    p = torch.tensor([1.0, 2.0])
    p.grad = torch.tensor([3.0, 5.0])
    code.Descent([p], 0.1).step()
    torch.testing.assert_close(p, torch.tensor([0.7, 1.5]))

def test_stats():
    assert code.Stats().add(1.0, 2).add(4.0, 1).mean == pytest.approx(2.0)

def test_stats_read():
    assert code.Stats().add(1.0, 2).add(4.0, 1).read() == pytest.approx(2.0)

def test_stats_once():
    assert code.Stats().add(1.0, 2).count == 2

@pytest.fixture(scope="module")
def table():
    table = code.Table()
    table.fill(4)
    return table

def test_table(table):
    assert table.rows == [0, 1, 2, 3]

def test_table_again(table):
    assert table.rows[-1] == 3

def test_total():
    total = code.get_total()(0.5)
    assert [total.add(4.0), total.add(6.0)] == [2.0, 5.0]

def test_follow(x):
    follow = code.Follow([x])
    for n in range(3):
        follow.step([(x * n + 1).cos()])
    assert abs(float(x.sum()) + 9.4740686) < 1e-4

def test_wrong(x):
    assert code.Stats().add(1.0, 2).count == 3
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run_suite(tmp_path_factory.mktemp("objects"), TABLE + NAMES, CODE, SOLUTION, TESTS)


@pytest.mark.parametrize(
    ("test", "place", "said"),
    [
        ("test_pair", "return x / rms + self.gain", "Expected the reference's `x / root * self.weight`"),
        ("test_positions", "rates = 10.0 ** torch.arange(width)", "`frequencies` in Positions.__init__ here"),
        ("test_momentum", 'v = (1 - group["momentum"]) * before + p.grad', "the failing test passes."),
        # A parameter that the reference does not take; a method of a base class without a reference.
        ("test_gain", "return x * self.gain + 1", "With the answer here"),
        ("test_descent", "change = 2 * self.rate * gradient", "found 2 times that value."),
        # A class that a function returns, under another name than the reference's.
        ("test_total", "return self.total + self.share", "Expected the answer, 2; found 4.5."),
        # A mistake that shows late in the life of an object, and a counter of one.
        ("test_warmup", "0.37 * min(self.calls, self.most + 1)", ""),
        ("test_decay", "factor = self.rate ** (self.calls + 1)", "in Decay.step"),
        ("test_renamed", "return x * self.columns - self.weight_of_rows", "With the answer here"),
        # A state that no call returns; fixtures that tests share, in which it is made, are run anew.
        ("test_stats", "    self.mean = self.mean + (x - self.mean) * self.count / total", ""),
        ("test_stats_read", "    self.mean = self.mean + (x - self.mean) * self.count / total", ""),
        ("test_table", "    for row in range(size - 1):", ""),
        ("test_table_again", "    for row in range(size - 1):", ""),
        # The first call is compared on the same tensors as the later ones.
        ("test_follow", "    total += slope + (more.sqrt() - square.sqrt()) * p", ""),
    ],
)
def test_the_line_in_a_method_or_a_constructor(places: dict[str, str], test: str, place: str, said: str) -> None:
    assert place in places[test].split("\n")[1]
    assert said in places[test]
    assert places[test].strip().endswith("the failing test passes.")


def test_the_line_that_returns_another_text(places: dict[str, str]) -> None:
    assert places["test_words"].strip() == (
        "code_.py:80, in Words.join\n"
        "    return self.separator.join(words[1:])\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "Call 1 of code_.Words.join gives 'b-c', and the reference 'a-b-c'."
    )


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("test_short", "cannot be compared: the reference's parameter bias is none of its own."),
        ("test_right", "return what the reference returns, but for rounding: code_.Right.forward (1)."),
        # Right code is not changed for a wrong test.
        ("test_wrong", "cannot be compared: it returns Stats, which holds no number."),
    ],
)
def test_what_does_not_fit_is_said_and_marks_nothing(places: dict[str, str], test: str, said: str) -> None:
    assert said in places[test]
    assert "^" not in places[test]
