"""Answers of every wrong kind, from every adapter, are mistakes of the student: none may stop the grading."""

import pytest

from staff.tests import ROOT
from staff.tests.grading.conftest import run_staff
from staff.tools.student import write_submission
from whichline_grader.grading.gradebook import Gradebook

pytestmark = pytest.mark.slow

# What becomes of each right answer; of a pair of them, of both.
ODD = {
    **{"nothing": "None", "number": "1.5", "text": "'an answer'", "list": "answer.tolist()"},
    **{"pair": "(answer, answer)", "dictionary": "{'answer': answer}"},
    **{"integers": "answer.long()", "bytes": "answer.to(torch.uint8)", "booleans": "answer > 0.1"},
    **{"half": "answer.half()", "float64": "answer.double()"},
    **{"scalar": "answer.sum()", "flat": "answer.flatten()", "one axis more": "answer[None]"},
    **{"turned": "answer.mT if answer.ndim > 1 else answer", "empty": "answer[..., :0]"},
    **{"off by one": "answer + 1", "zeros": "answer * 0", "huge": "answer * 1e38", "nan": "answer * torch.nan"},
    "half of it infinite": "torch.where(torch.arange(answer.shape[-1]) % 2 == 0, answer, torch.inf)",
    **{"cut off": "answer.detach()", "its own": "answer.detach().clone().requires_grad_()"},
}
EVERY = """
def oddly(right):
    def run(*arguments, **named):
        answer = right(*arguments, **named)
        return tuple(odd(part) for part in answer) if isinstance(answer, tuple) else odd(answer)
    return run
for name in [name for name in globals() if name.startswith("run_")]:
    globals()[name] = oddly(globals()[name])
"""
FIRST = "def odd(answer):\n    return answer\n" + EVERY.replace(
    "tuple(odd(part) for part in answer) if isinstance(answer, tuple) else odd(answer)",
    "answer[0] if isinstance(answer, tuple) else answer",
)
SPOILING = "def odd(answer):\n    return answer + 1\n" + EVERY.replace(
    "        return",
    "        for x in (*arguments, *named.values()):\n"
    "            if isinstance(x, torch.Tensor) and x.is_floating_point():\n"
    "                x.detach().fill_({value})\n"
    "        return",
)


@pytest.mark.nightly
@pytest.mark.parametrize("part", [0, 1, 2])  # each with a time limit of its own
def test_no_answer_stops_the_grading(part, tmp_path):
    adapters = {name: f"def odd(answer):\n    return {value}\n{EVERY}" for name, value in ODD.items()}
    adapters["no pair"] = FIRST
    adapters |= {f"inputs {value}": SPOILING.replace("{value}", f"float('{value}')") for value in ("0", "nan", "inf")}
    paths = [write_submission(tmp_path / name, odd) for name, odd in [*adapters.items()][part::3]]
    assert "NOT GRADED" not in run_staff(ROOT, "grade", *paths, "--out", tmp_path / "results", "--jobs", 2)
    with Gradebook(tmp_path / "results" / "gradebook.sqlite") as gradebook:
        right = {each.submission: all(result.passed for result in each.results) for each in gradebook.latest()}
    assert len(right) == len(paths)
    assert [name for name, every in right.items() if every] == []
