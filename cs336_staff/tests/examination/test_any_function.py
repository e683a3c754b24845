"""An examination ends well whatever the function does, and the solution has no findings.

`cs336 staff verify` examines every misconception.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import adapters
from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.case import case_names, load_case
from cs336_kit.engine.room import load_room
from cs336_kit.problems.linear.examination import examine_linear
from cs336_kit.problems.multihead_attention.examination import examine_cross_attention
from cs336_kit.problems.multihead_self_attention.examination import examine_multihead, examine_multihead_with_rope
from cs336_kit.problems.rope.examination import examine_rope
from cs336_kit.problems.scaled_dot_product_attention.examination import examine_attention
from cs336_kit.problems.softmax.examination import examine_softmax
from cs336_staff.authoring.programs import RIGHT
from cs336_staff.authoring.room import load_rooms

FIXTURES = find_root(Path(__file__).parent) / "fixtures"
EXAMINATIONS = {
    "run_linear": examine_linear,
    "run_rope": examine_rope,
    "run_multihead_self_attention": examine_multihead,
    "run_multihead_self_attention_with_rope": examine_multihead_with_rope,
    "run_multihead_attention": examine_cross_attention,
}


def shape_of_answer(**arguments) -> torch.Size:
    if "weights" in arguments:
        return torch.Size((*arguments["in_features"].shape[:-1], arguments["d_out"]))
    first = next(name for name in ("in_features", "in_query_or_key", "query") if name in arguments)
    return arguments[first].shape


def raises(**arguments):
    raise ValueError("no")


STRANGE = {
    "raises": raises,
    "none": lambda **arguments: None,
    "scalar": lambda **arguments: torch.tensor(1.0),
    "zeros": lambda **arguments: torch.zeros(shape_of_answer(**arguments)),
    "nan": lambda **arguments: torch.full(shape_of_answer(**arguments), torch.nan),
    "infinity": lambda **arguments: torch.full(shape_of_answer(**arguments), torch.inf),
    "random": lambda **arguments: torch.randn(shape_of_answer(**arguments)),
    "integers": lambda **arguments: torch.ones(shape_of_answer(**arguments), dtype=torch.long),
    "lists": lambda **arguments: torch.zeros(shape_of_answer(**arguments)).tolist(),
}


@pytest.mark.parametrize("adapter", EXAMINATIONS)
@pytest.mark.parametrize("strange", STRANGE)
def test_a_strange_function_gets_a_finding(adapter, strange):
    findings = EXAMINATIONS[adapter](STRANGE[strange])
    assert findings
    assert all(finding.measured and finding.question and finding.section for finding in findings)


@pytest.mark.parametrize(
    ("problem", "adapter"),
    [(problem, adapter) for problem in load_rooms() for adapter in load_room(problem).examinations],
)
def test_the_solution_has_none(problem, adapter):
    assert load_room(problem).examinations[adapter](getattr(adapters, adapter)) == []


@pytest.mark.parametrize("module", ["torch.fx.experimental.symbolic_shapes", "torch._inductor", "torch._dynamo"])
def test_nothing_is_imported_that_takes_seconds_in_every_process_that_examines(monkeypatch, module):
    """Given a cotangent, autograd imports sympy; asked for determinism or a mode, torch imports its compiler."""
    monkeypatch.setitem(sys.modules, module, None)
    found = examine_softmax(lambda in_features, dim: torch.softmax(in_features, dim) * torch.rand(()))
    assert "softmax-random" in [finding.id for finding in found]  # an experiment that raises finds nothing
    assert not examine_softmax(torch.softmax)


@pytest.mark.parametrize(
    ("run", "question"),
    [
        (lambda in_features, dim: __import__("no_such_package"), "how is it spelt there"),
        (lambda in_features, dim, temperature: in_features, "Which arguments does the `def` name"),
        (lambda in_features, dim: nn.Linear(1, 1).load_state_dict({"W": in_features}), "your module's parameters"),
        (lambda in_features, dim: in_features + torch.zeros(97), "which shapes meet there"),
        (lambda in_features, dim: None, "What does your function return"),
        (lambda in_features, dim: {}["x"], "take for granted"),
    ],
)
def test_the_question_fits_the_error(run, question):
    [found] = examine_softmax(run)
    assert question in found.question


def test_nothing_is_asked_about_what_python_says_itself():
    [found] = examine_softmax(lambda in_features, dim: compile("softmax = =", "functional.py", "exec"))
    assert found.question == ""


def test_a_mask_in_brackets_that_does_not_broadcast_has_its_own_sentence():
    def run(Q, K, V, mask=None):
        scores = Q @ K.mT / Q.shape[-1] ** 0.5
        if mask is not None:
            scores[~mask] = -torch.inf
        return torch.softmax(scores, -1) @ V

    first, *_ = examine_attention(run)
    assert "The shape of the mask" in first.measured
    assert first.means == "`x[mask]` does not broadcast the mask: it must have the shape of x, or of its first axes."


def test_each_error_is_quoted_from_its_own_call():
    def run(in_features, dim):
        raise ValueError("long" if in_features.ndim > 2 else "short")

    assert examine_softmax(run)[0].measured == (
        "Your function fails for shape (3, 4) and dim=-1: `ValueError: short`. Every other call that was tried fails, "
        "too, but differently for shape (2, 3, 4) and dim=-1: `ValueError: long`."
    )


def test_a_gradient_that_no_test_asks_for_makes_none_fail():
    def copies_the_weights(o_proj_weight, **inputs):
        return RIGHT["run_multihead_self_attention"](o_proj_weight=o_proj_weight.detach(), **inputs)

    [found] = examine_multihead(copies_the_weights)
    assert found.id == "multihead-gradient-cut"
    cases = [load_case(FIXTURES, name) for name in case_names(FIXTURES, "multihead*/*")]
    assert not any(map(found.touches, (case for case in cases if case.call == "run_multihead_self_attention")))
