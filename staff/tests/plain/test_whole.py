"""A port whose classes are made otherwise than the original's: its values are held against those of the same test."""

import pytest

from staff.tests.plain.test_plain import TABLE, run_suite

pytestmark = pytest.mark.slow

NAMES = '[tool.whichline.names]\nPort = "Original"\n'
SOLUTION = """
import torch
from torch import nn

class Config:
    width, depth = 6, 3

class RMSNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.width))
    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + 1e-6) * self.weight

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = RMSNorm(config)
        self.up = nn.Linear(config.width, 2 * config.width)
        self.down = nn.Linear(2 * config.width, config.width)
    def forward(self, x):
        inner = nn.functional.silu(self.up(self.norm(x)))
        return x + self.down(inner)

class Original(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = RMSNorm(config)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

class Named(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
    def forward(self, x):
        return {"hidden": self.model(x)}
"""
CODE = """
import torch
from torch import nn

def rms(x, gain):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain

def rms_by_sum(x, gain):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() * gain

def convert(up, down):
    weight, bias = up["weight"], up["bias"]
    return {"one": weight, "bias": -bias}

class Layer(nn.Module):
    def __init__(self, width, rms):
        super().__init__()
        self.rms = rms
        self.gain = nn.Parameter(torch.ones(width))
        self.one = nn.Linear(width, 2 * width)
        self.two = nn.Linear(2 * width, width)
    def forward(self, x):
        inner = self.one(self.rms(x, self.gain))
        return x + self.two(inner * torch.sigmoid(inner))

class FromNormalised(Layer):
    def forward(self, x):
        x = self.rms(x, self.gain)
        inner = self.one(x)
        return x + self.two(inner * torch.sigmoid(inner))

class Port(nn.Module):
    def __init__(self, width, depth, kind=Layer, rms=rms):
        super().__init__()
        self.rms = rms
        self.layers = nn.ModuleList(kind(width, rms) for _ in range(depth))
        self.gain = nn.Parameter(torch.ones(width))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.rms(x, self.gain)
"""
TESTS = """
import pytest
import torch

import code_
from solution import Config, Named, Original

@pytest.fixture(scope="session")
def original():
    torch.manual_seed(1)
    model = Original(Config())
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape)
    return model

@pytest.fixture(scope="session")
def x():
    return torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(2))

@pytest.fixture(scope="session")
def expected(original, x):
    return original(x)

def port(original, *kinds):
    made = code_.Port(6, 3, *kinds)
    for ours, theirs in zip(made.layers, original.blocks):
        ours.gain.data = theirs.norm.weight.data
        ours.one.load_state_dict(theirs.up.state_dict())
        ours.two.load_state_dict(theirs.down.state_dict())
    made.gain.data = original.norm.weight.data
    return made

def test_right(original, x):
    torch.testing.assert_close(port(original)(x), original(x))

def test_residual(original, x):
    torch.testing.assert_close(port(original, code_.FromNormalised)(x), original(x))

@pytest.fixture(scope="session")
def both(original, x):
    return port(original, code_.FromNormalised)(x), Named(original)(x)

def test_named(both):
    torch.testing.assert_close(both[0], both[1]["hidden"])

@pytest.fixture(scope="session")
def converted(original):
    made = port(original)
    for ours, theirs in zip(made.layers, original.blocks):
        weights = code_.convert(theirs.up.state_dict(), theirs.down.state_dict())
        ours.one.weight.data, ours.one.bias.data = weights["one"], weights["bias"]
    return made

def test_converted(original, converted, x):
    torch.testing.assert_close(converted(x), original(x))

def test_norm(original, expected, x):
    torch.testing.assert_close(port(original, code_.Layer, code_.rms_by_sum)(x), expected)
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run_suite(tmp_path_factory.mktemp("port"), TABLE + NAMES, CODE, SOLUTION, TESTS)


@pytest.mark.parametrize("test", ["test_residual", "test_named"])
def test_a_line_in_a_layer_of_a_port_also_when_the_model_returns_by_name(places: dict[str, str], test: str) -> None:
    told = """\
code_.py:30, in FromNormalised.forward
    return x + self.two(inner * torch.sigmoid(inner))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
Expected the reference's `x + self.down(inner)` in Block.forward, each time; found wrong numbers in 60 of 60 places.
The reference has it in solution.py, line 24.
With the reference's `x + self.down(inner)` in Block.forward, each time here, the failing test passes."""
    assert places[test].strip() == told


def test_what_fixtures_have_computed_is_compared_too(places: dict[str, str]) -> None:
    _, code, mark, said, *_ = places["test_norm"].strip().splitlines()
    assert code[mark.index("^") : mark.rindex("^") + 1] == "x.square().sum(-1, keepdim=True)"
    assert said == "Expected the reference's `variance` in RMSNorm.forward, each time; found 6 times that value."


def test_a_line_that_converts_weights_in_a_fixture(places: dict[str, str]) -> None:
    place, code, mark, *_, proof = places["test_converted"].strip().splitlines()
    assert place == "code_.py:13, in convert"
    assert code[mark.index("^") : mark.rindex("^") + 1] == "-bias"
    assert proof == "With the opposite sign here, the failing test passes."
