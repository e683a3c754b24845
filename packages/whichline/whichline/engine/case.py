"""Test cases: the inputs and the expected outputs that the tests run on."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from whichline.engine.compare import (
    THREE_DIGITS,
    WrongAnswer,
    add_article,
    change_tensors,
    compare,
    compare_form,
    find_scale,
    is_float,
    listed,
)
from whichline.engine.errors import CourseworkError
from whichline.engine.result import Check

METADATA = "case"
GRADIENT = "gradient of "
# The tolerance for the last digits: as a share of the largest expected number, and of each number by itself.
LAST_DIGITS = {
    torch.float64: (1e-12, 0.0),
    torch.float32: (5e-5, 0.0),
    **{half: (1e-6, torch.finfo(half).eps) for half in (torch.float16, torch.bfloat16)},
}
# A gradient may be small because its terms cancel, so its scale is at least this share of the largest cotangent.
OF_COTANGENT = 1e-2
UNREADABLE = (OSError, SafetensorError, KeyError, TypeError, ValueError)  # what a damaged file raises


class CaseError(CourseworkError):
    """The file of a test case is missing or damaged; the message says which and what to do."""


@dataclass(repr=False)  # nobody wants to read every tensor
class Case:
    """One call of an adapter, with its expected outputs.

    `case.Q` is the input named Q, a tensor or a plain number; every test gets tensors of its own.
    """

    name: str  # folder and file name, "folder/case"
    call: str  # the name of the adapter
    inputs: dict[str, Any]  # the arguments of the adapter
    cotangent: Tensor | None  # the gradient of the loss with respect to the answer, if the test case has gradients
    # In float64: "answer", any further outputs by their names, and gradients as "gradient of Q".
    expected: dict[str, Tensor]
    original: dict[str, Any] = field(default_factory=dict)  # the inputs before any call, which may have changed them
    _allowed: dict[tuple[float, float], dict[str, Tensor]] = field(default_factory=dict, init=False)

    def __getattr__(self, name: str) -> Any:
        inputs = self.__dict__.get("inputs", {})
        if name in inputs:
            return inputs[name]
        raise AttributeError(f"the case {self.__dict__.get('name')} has no input {name}, it has {', '.join(inputs)}")

    def copy(self) -> "Case":
        """The same test case, with tensors of its own."""
        copy = replace(self, inputs=change_tensors(self.inputs, Tensor.clone), original=self.inputs)
        copy._allowed = self._allowed
        return copy

    def check(self, answer: Any) -> None:
        """Raise WrongAnswer unless `answer` is right to three digits."""
        self._compare(answer, self.tolerance)

    def check_to_the_last_digit(self, answer: Any) -> None:
        """Raise WrongAnswer unless `answer` is right to the last digits, up to rounding."""
        self._compare(answer, self.rounding)

    def _compare(self, answer: Any, tolerance: dict[str, Tensor]) -> None:
        for what, part in self.parts(answer).items():
            check = Check.ANSWER if what == "answer" else Check.OUTPUT
            compare(part, self.expected[what], self._choose_dtype(what), tolerance[what], what, check)

    def _choose_dtype(self, what: str) -> torch.dtype:
        """The dtype that an output should have: that of the inputs, but for integers and truth values."""
        return self.dtype if is_float(self.expected[what]) else self.expected[what].dtype

    @property
    def tolerance(self) -> dict[str, Tensor]:
        """The tolerance of each number in `expected`, for three digits, or for fewer if the dtype has fewer."""
        return self._allow(THREE_DIGITS, of_each=LAST_DIGITS[self.dtype][1])

    @property
    def rounding(self) -> dict[str, Tensor]:
        """The tolerance of each number in `expected`, for the last digits."""
        return self._allow(*LAST_DIGITS[self.dtype])

    def _allow(self, of_largest: float, of_each: float = 0.0) -> dict[str, Tensor]:
        """Compute tolerances. An exact 0 allows no error, for example a masked weight, but in a gradient it does."""
        if known := self._allowed.get((of_largest, of_each)):
            return known
        allowed = self._allowed[of_largest, of_each] = {}
        for what, right in self.expected.items():
            if not is_float(right):
                allowed[what] = torch.zeros(right.shape, dtype=torch.float64)
                continue
            largest = find_scale(right)
            if what.startswith(GRADIENT) and self.cotangent is not None:
                largest = max(largest, OF_COTANGENT * find_scale(self.cotangent))
            each = of_largest * largest + of_each * right.abs()
            allowed[what] = each if what.startswith(GRADIENT) else each.where(right != 0, 0.0)
        return allowed

    def check_form(self, answer: Any) -> dict[str, Tensor]:
        """The parts of `answer`; WrongAnswer unless they have the right shapes and the right dtype."""
        parts = self.parts(answer)
        for what, part in parts.items():
            compare_form(part, self.expected[what], self._choose_dtype(what), what)
        return parts

    def parts(self, answer: Any) -> dict[str, Any]:
        """Map what an adapter returned to the names in `expected`; WrongAnswer if it is not a tuple of as many."""
        names = self.outputs
        if len(names) == 1:
            return {"answer": answer}
        if not isinstance(answer, tuple | list) or len(answer) != len(names):
            count = f" of {len(answer)}" if isinstance(answer, tuple | list) else ""
            came = add_article(type(answer).__name__) + count
            expected = f"a tuple: {listed(f'the {name}' for name in names)}"
            raise WrongAnswer(f"the answer is {came}, expected {expected}", kind=f"the answer is not {expected}")
        return dict(zip(names, answer, strict=True))

    def check_gradients(self, answer: Any) -> None:
        """Raise WrongAnswer unless `answer`, and its gradients with respect to some inputs, are right to three digits.

        These are the inputs that `require_gradients` marked.
        """
        leaves = {name: x for name, x in self.inputs.items() if isinstance(x, Tensor) and x.requires_grad}
        self.check(answer)
        answer = self.parts(answer)["answer"]
        if not answer.requires_grad:
            raise WrongAnswer(
                "the answer is cut off from its inputs, so nothing can be learned through it: look for .detach(), "
                ".data, .item(), .numpy(), torch.tensor(...) or torch.no_grad() in your code",
                Check.GRADIENT,
            )
        assert self.cotangent is not None
        loss = (answer * self.cotangent).sum()  # given a cotangent, autograd imports sympy, which takes half a second
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            what = GRADIENT + name
            if gradient is None:
                message = f"the answer does not depend on {name}: its gradient is missing"
                if name.endswith("_weight"):
                    message += "; does the adapter copy it, with .data or load_state_dict? Use functional_call instead"
                raise WrongAnswer(message, Check.GRADIENT)
            compare(gradient, self.expected[what], leaf.dtype, self.tolerance[what], what, Check.GRADIENT)

    @contextmanager
    def unchanged_inputs(self) -> Iterator[None]:
        """Raise WrongAnswer if the code inside changes an input."""
        tensors = dict(list_tensors(self.inputs))
        before = {name: x.clone() for name, x in tensors.items()}
        yield
        for name, x in tensors.items():
            if not torch.equal(x, before[name]):
                raise WrongAnswer(f"{name} was changed: look for an operation in place, such as x /= ...", Check.INPUTS)

    def require_gradients(self) -> None:
        """Mark the inputs whose gradients are stored."""
        for name in self.gradients:
            self.inputs[name].requires_grad_()

    @property
    def gradients(self) -> list[str]:
        """The inputs whose gradients are stored."""
        return [name for name in self.inputs if GRADIENT + name in self.expected]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the inputs, which outputs should have, too."""
        return dtype_of(self.inputs)

    @property
    def outputs(self) -> list[str]:
        """The names of the adapter's outputs, "answer" first."""
        outputs = (what for what in self.expected if not what.startswith(GRADIENT))
        return sorted(outputs, key=lambda what: what != "answer")


def dtype_of(inputs: Mapping[str, Any]) -> torch.dtype:
    """The dtype of the first floating-point tensor among some inputs; torch's default dtype if there is none."""
    return next((x.dtype for _, x in list_tensors(inputs) if is_float(x)), torch.get_default_dtype())


def list_tensors(inputs: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors among some inputs by their names; "weights/q" is in a dictionary."""
    for key, x in inputs.items():
        if isinstance(x, Tensor):
            yield above + key, x
        elif isinstance(x, dict):
            yield from list_tensors(x, f"{above}{key}/")


def list_case_names(fixtures: Path, pattern: str) -> list[str]:
    """The names of the test cases under `fixtures` that match a pattern such as "linear/*d".

    A student should read the simplest failure first. So a test case made by hand comes first, then those without
    something, such as "no-batch", and other dtypes come last.
    """
    names = (path.relative_to(fixtures).with_suffix("").as_posix() for path in fixtures.glob(f"{pattern}.safetensors"))
    return sorted(names, key=lambda name: ("float" in name, "by-hand" not in name, "no-" not in name, name))


def load_case(fixtures: Path, name: str) -> Case:
    """Read a test case, from memory if its file has not changed; CaseError if that is missing or damaged.

    All callers share its tensors, so `copy` it.
    """
    path = fixtures / f"{name}.safetensors"
    return _read_case(path, name, path.stat().st_mtime_ns if path.exists() else 0)


@cache
def _read_case(path: Path, name: str, changed: int) -> Case:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
            metadata = json.loads(file.metadata()[METADATA])
        plain = metadata["arguments"]
        inputs = {key: _read_input(f"input/{key}", plain.get(key), tensors) for key in metadata["order"]}
        expected = {key.removeprefix("expected/"): x for key, x in tensors.items() if key.startswith("expected/")}
        return Case(name, metadata["call"], inputs, tensors.get("cotangent"), expected)
    except UNREADABLE as error:
        raise CaseError(f"the case {path} cannot be read ({error}); take it again from the handout") from None


def _read_input(name: str, plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """An input: the tensor that is stored under its name, or a plain value; a dictionary may hold both."""
    if isinstance(plain, dict):
        return {key: _read_input(f"{name}/{key}", each, tensors) for key, each in plain.items()}
    return tensors.get(name, plain)


def load_metadata(fixtures: Path, name: str) -> dict[str, Any]:
    """Read how a test case was made: call, seed, generator, torch version, sha256 of the inputs."""
    with safe_open(fixtures / f"{name}.safetensors", framework="pt") as file:
        return json.loads(file.metadata()[METADATA])
