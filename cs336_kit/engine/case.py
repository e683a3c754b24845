"""Cases: the stored inputs and right answers that the tests run on."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cs336_kit.engine.compare import WrongAnswer, article, compare, compare_form
from cs336_kit.engine.dropout import check_dropout

METADATA = "case"
# What is expected beside the answer of an adapter that gives an output and the weights it was made with.
WEIGHTS = "matrix of weights"

# For each check of a case that a mistake fails, in the order of the checks, what the mistake gives there: a tensor, or
# a word where the numbers differ from one program to the next ("raises", or one of the relations' `SIGNS`).
Outcomes = dict[str, Tensor | str]


class CaseError(Exception):
    """A case file is missing or damaged; the message says which and what to do."""


@dataclass(frozen=True, repr=False)  # nobody wants to read every tensor
class Case:
    """One stored call of an adapter.

    `case.Q` is the input named Q, a tensor or a plain number; every test gets tensors of its own.

    Args:
        name: folder and file name, "attention/3d-causal".
        inputs: what the adapter is called with.
        cotangent: for cases with gradients, the gradient of the loss with respect to the answer.
        expected: the right answers in float64: "answer", `WEIGHTS` if the adapter gives them too, and "gradient of Q"
            and so on where gradients are stored; where weights are dropped at random, what is right without that.
        tolerance: for each of `expected`, the largest error that a right implementation may have.
        wrong: reads, once, what known mistakes give, by their ids; those that pass every check are left out.
        original: the inputs as they were, whatever a call has made of them since; without it, `inputs`.
        checks: the checks made so far; when one fails, the last.
    """

    name: str
    inputs: dict[str, Any]
    cotangent: Tensor | None
    expected: dict[str, Tensor]
    tolerance: dict[str, float]
    wrong: Callable[[], dict[str, Outcomes]] = dict
    original: dict[str, Any] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if not self.original:
            object.__setattr__(self, "original", self.inputs)  # it is frozen

    @property
    def family(self) -> str:
        """What the case is about: "softmax", "attention", "linear", "rope", "multihead" or a bonus problem's id."""
        return self.name.partition("/")[0].partition("-")[0]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.inputs[name]
        except KeyError:
            raise AttributeError(f"the case {self.name} has no input {name}, it has {', '.join(self.inputs)}") from None

    def copy(self) -> "Case":
        """The same case, with tensors and checks of its own."""
        return replace(self, inputs={key: x.clone() if isinstance(x, Tensor) else x for key, x in self.inputs.items()})

    def check(self, answer: Any) -> None:
        """Fail, with what is wrong, unless `answer` is the right one.

        Where the case drops weights at random, it may be any of the right ones.
        """
        if not self.drops:
            for what, part in self.parts(answer).items():
                self._compare(part, what, self.dtype)
            return
        parts = self.check_form(answer)
        self.checks.append("dropout")
        right, tolerance = self.expected[WEIGHTS], self.tolerance[WEIGHTS]
        check_dropout(parts["answer"], parts[WEIGHTS], right, self.original["V"], self.dropout, tolerance)

    def check_form(self, answer: Any) -> dict[str, Tensor]:
        """The parts of `answer`; fail, with what is wrong, unless they have the right shapes and the right dtype."""
        parts = self.parts(answer)
        for what, part in parts.items():
            self.checks.append(what)
            compare_form(part, self.expected[what], self.dtype, what)
        return parts

    def parts(self, answer: Any) -> dict[str, Any]:
        """What an adapter gave, under the names in `expected`: the answer, and the weights where they are stored.

        Raises:
            WrongAnswer: the weights are stored, and what came is no pair.
        """
        if WEIGHTS not in self.expected:
            return {"answer": answer}
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            self.checks.append("answer")
            came = article(type(answer).__name__)
            raise WrongAnswer(f"the answer is {came}, expected a pair: the output and the weights", "no pair")
        return {"answer": answer[0], WEIGHTS: answer[1]}

    def check_gradients(self, answer: Any) -> None:
        """Fail, with what is wrong, unless the gradients of `answer` with respect to the inputs are right.

        Which inputs: those that `require_gradients` marked.
        """
        leaves = {name: x for name, x in self.inputs.items() if isinstance(x, Tensor) and x.requires_grad}
        self.check(answer)
        answer = self.parts(answer)["answer"]
        self.checks.append("gradients")
        if not answer.requires_grad:
            raise WrongAnswer(
                "the answer is cut off from its inputs, so nothing can be learned through it: look for .detach(), "
                ".data, .item(), .numpy(), torch.tensor(...) or torch.no_grad() in your code",
                "detached",
            )
        gradients = torch.autograd.grad(answer, list(leaves.values()), self.cotangent, allow_unused=True)
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            if gradient is None:
                self.checks.append(f"gradient of {name}")
                raise WrongAnswer(f"the answer does not depend on {name}: its gradient is missing", "missing")
            self._compare(gradient, f"gradient of {name}", leaf.dtype)

    @contextmanager
    def unchanged_inputs(self) -> Iterator[None]:
        """Fail if what happens inside changes an input."""
        tensors = {name: x for name, x in self.inputs.items() if isinstance(x, Tensor)}
        before = {name: x.clone() for name, x in tensors.items()}
        yield
        self.checks.append("inputs")
        for name, x in tensors.items():
            if not torch.equal(x, before[name]):
                raise WrongAnswer(f"{name} was changed: look for an operation in place, such as x /= ...", "changed")

    def require_gradients(self) -> None:
        """Mark the inputs whose gradients are stored."""
        for name in self.gradients:
            self.inputs[name].requires_grad_()

    @property
    def gradients(self) -> list[str]:
        """The inputs whose gradients are stored."""
        return [name for name in self.inputs if f"gradient of {name}" in self.expected]

    @property
    def drops(self) -> bool:
        """Whether the call drops weights at random."""
        return bool(self.inputs.get("training") and self.inputs["dropout"])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the inputs, which answers should have too."""
        return next(x.dtype for x in self.inputs.values() if isinstance(x, Tensor) and x.is_floating_point())

    def _compare(self, answer: Any, what: str, dtype: torch.dtype) -> None:
        self.checks.append(what)
        compare(answer, self.expected[what], dtype, self.tolerance[what], what)


def case_names(fixtures: Path, pattern: str) -> list[str]:
    """The names of the cases under `fixtures` that match, "attention/3d-*"; other dtypes last, as they tell less."""
    paths = fixtures.glob(f"{pattern}.safetensors")
    names = (path.relative_to(fixtures).with_suffix("").as_posix() for path in paths)
    return sorted(names, key=lambda name: ("float" in name, name))


def load_case(fixtures: Path, name: str) -> Case:
    """Read one case, from memory if its file is the one that was read before.

    Raises:
        CaseError: the file is missing or damaged.
    """
    path = fixtures / f"{name}.safetensors"
    return _stored_case(fixtures, name, path.stat().st_mtime_ns if path.exists() else 0).copy()


@cache
def _stored_case(fixtures: Path, name: str, changed: int) -> Case:
    with _reading(fixtures, name, "input/", "expected/", "cotangent") as (tensors, metadata):
        stored = {key.removeprefix("input/"): x for key, x in tensors.items() if key.startswith("input/")}
        return Case(
            name=name,
            inputs={key: stored.get(key, metadata["arguments"].get(key)) for key in metadata["order"]},
            cotangent=tensors.get("cotangent"),
            expected={key.removeprefix("expected/"): x for key, x in tensors.items() if key.startswith("expected/")},
            tolerance=metadata["tolerance"],
            wrong=cache(partial(load_wrong, fixtures, name)),
        )


def load_wrong(fixtures: Path, name: str) -> dict[str, Outcomes]:
    """What known mistakes give on one case, as `Case.wrong` documents it.

    Raises:
        CaseError: the file is missing or damaged.
    """
    with _reading(fixtures, name, "wrong/") as (tensors, metadata):
        outcomes: dict[str, Outcomes] = {}
        for key, x in tensors.items():
            _, mistake, *check = key.split("/")
            outcomes.setdefault(mistake, {})[check[0] if check else "answer"] = x
        for mistake, signs in metadata["signs"].items():
            outcomes.setdefault(mistake, {}).update(signs)
        order = [
            "answer",
            WEIGHTS,
            "dropout",
            "gradients",
            *(f"gradient of {name}" for name in metadata["order"]),
            "inputs",
        ]
        return {
            mistake: {check: found[check] for check in order if check in found} for mistake, found in outcomes.items()
        }


def load_metadata(fixtures: Path, name: str) -> dict[str, Any]:
    """How one case was made: call, seed, generator, torch version and sha256 of the inputs, among others.

    Raises:
        CaseError: the file is missing or damaged.
    """
    with _reading(fixtures, name) as (_, metadata):
        return metadata


@contextmanager
def _reading(fixtures: Path, name: str, *prefixes: str) -> Iterator[tuple[dict[str, Tensor], dict[str, Any]]]:
    path = fixtures / f"{name}.safetensors"
    try:
        with safe_open(path, framework="pt") as file:
            keys = [key for key in file.keys() if key.startswith(prefixes)]  # noqa: SIM118 (no mapping)
            tensors = {key: file.get_tensor(key) for key in keys}
            metadata = json.loads(file.metadata()[METADATA])
        yield tensors, metadata
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CaseError(f"the case {path} cannot be read ({error}); take it again from the handout") from None
