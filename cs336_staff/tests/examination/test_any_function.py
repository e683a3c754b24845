"""An examination ends well whatever the function does, and leaves the random state alone."""

import sys
from pathlib import Path

import pytest
import torch

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.case import case_names, load_case
from cs336_kit.examination.cross_attention import examine_cross_attention
from cs336_kit.examination.linear import examine_linear
from cs336_kit.examination.multihead import examine_multihead, examine_multihead_with_rope
from cs336_kit.examination.rope import examine_rope
from cs336_kit.examination.softmax import examine_softmax
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.release.verify import submission

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
    "ones": lambda **arguments: torch.ones(shape_of_answer(**arguments)),
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


def test_gradients_are_examined_without_importing_sympy(monkeypatch):
    """autograd imports it where it is given a cotangent: more than a second in every process that examines."""
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.symbolic_shapes", None)
    assert not examine_softmax(torch.softmax)


# The folders of the stored cases with which an adapter is tested.
CASES = {
    "run_linear": ["linear"],
    "run_rope": ["rope"],
    "run_multihead_self_attention": ["multihead"],
    "run_multihead_self_attention_with_rope": ["multihead-rope", "multihead"],  # they are one problem
    "run_multihead_attention": ["multihead_attention", "multihead_attention-gradients"],
}


@pytest.mark.slow
@pytest.mark.parametrize("adapter", EXAMINATIONS)
def test_every_entry_of_the_catalogue_can_be_examined(adapter):
    cases = [load_case(FIXTURES, name) for folder in CASES[adapter] for name in case_names(FIXTURES, f"{folder}/*")]
    before = torch.random.get_rng_state()
    for id, entry in CATALOGUE.items():
        if adapter in entry.adapters:
            findings = EXAMINATIONS[adapter](submission(id)[adapter])
            assert len({finding.id for finding in findings}) == len(findings), id
            touched = [[finding.touches(case) for case in cases] for finding in findings]
            if adapter.startswith(f"run_{entry.problem}") and findings:
                assert any(map(any, touched)), f"{id} is found and can make no test fail"
    assert torch.equal(before, torch.random.get_rng_state())
