"""The student's code, called through their `adapters.py`, and calls of it from a file or a stored case."""

import runpy
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cs336_kit.engine.assignment import FILE_NAME, AssignmentError, find_needs, find_root, load_problems
from cs336_kit.engine.case import Case, case_names, load_case
from cs336_kit.engine.compare import WrongAnswer, check_shape, dtype_name
from cs336_kit.engine.failure import describe
from cs336_kit.engine.room import FOLDER, load_room
from cs336_kit.engine.suite import Calls
from cs336_kit.lab import BadInput
from cs336_kit.way.steps import Follow

PROBLEM = "scaled_dot_product_attention"
ADAPTER = f"run_{PROBLEM}"
NAMES = ("Q", "K", "V", "mask")


class Student:
    """The code in the folder of the assignment; or a function of Q, K, V and a mask or None, in its place.

    Raises:
        click.ClickException: `adapters.py` cannot be imported, in the words that a failing test has for it.
    """

    def __init__(self, attention: Callable[..., Tensor] | None = None) -> None:
        self.root, self.own = Path.cwd(), attention
        self.adapters = Calls(SimpleNamespace(**{ADAPTER: attention}))
        with suppress(AssignmentError) if attention else nullcontext():
            self.root = find_root(self.root)
        if attention is None:
            sys.path.insert(0, str(self.root))  # `adapters.py` imports `cs336_basics` from beside it
            with self.in_words():
                self.adapters.adapters = SimpleNamespace(**runpy.run_path(str(self.root / "adapters.py")))

    @property
    def cell(self) -> str:
        """The file of the function, if that is not the assignment's."""
        return getattr(getattr(self.own, "__code__", None), "co_filename", "")

    def attention(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        V: Float[Tensor, "... keys d_v"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries d_v"]:
        """Call `run_scaled_dot_product_attention` on copies, and return its answer with its gradients.

        Raises:
            click.ClickException: it raises an error, or gives something other than a tensor of the right shape.
        """
        with self.in_words():
            copies = (x if x is None else x.clone() for x in (Q, K, V, mask))
            answer = self.adapters.run_scaled_dot_product_attention(*copies)
            check_shape(answer, (*broadcast(Q, K, V, mask), Q.shape[-2], V.shape[-1]))
            if not answer.is_floating_point():
                came, expected = dtype_name(answer.dtype), dtype_name(Q.dtype)
                raise WrongAnswer(f"the answer has dtype {came}, expected {expected}, that of the inputs")
        return answer

    def weights(
        self,
        Q: Float[Tensor, "... queries d_k"],
        K: Float[Tensor, "... keys d_k"],
        mask: Bool[Tensor, "... #queries #keys"] | None = None,
    ) -> Float[Tensor, "... queries keys"]:
        """The weights that the student's attention gives to each key: its output when the values are the identity."""
        identity = torch.eye(K.shape[-2], dtype=Q.dtype, device=Q.device)
        return self.attention(Q, K, identity.expand(*broadcast(Q, K, mask), -1, -1), mask)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Turn an error of the student's code into a click.ClickException."""
        try:
            yield
        except (Exception, SystemExit) as error:
            failure = describe(error, self.root)
            raise click.ClickException("\n".join((failure.headline, *failure.details))) from None


def broadcast(*tensors: Tensor | None) -> tuple[int, ...]:
    """The batch-like dimensions that they broadcast to."""
    return np.broadcast_shapes(*(x.shape[:-2] for x in tensors if x is not None))


def read_tensor(x: Any) -> Tensor:
    """A tensor, which may require a gradient, or a numpy array; or a list of them, of one shape."""
    return torch.stack([read_tensor(each) for each in x]) if isinstance(x, list) else torch.as_tensor(x).detach()


def make_call(name: str, tensors: Mapping[str, Any]) -> Case:
    """A call with these arguments, of whatever shapes and dtypes they are; what is right is not known yet.

    Raises:
        BadInput: Q, K or V is not among them.
    """
    if missing := [key for key in NAMES[:3] if not isinstance(tensors.get(key), Tensor)]:
        raise BadInput(
            f"{name} lacks {' and '.join(missing)}, it has {', '.join(tensors) or 'nothing'}: "
            "a call of attention is Q, K, V and, if there is one, mask"
        )
    return Case(name, ADAPTER, {key: tensors.get(key) for key in NAMES}, None, {})


def read_call(path: Path) -> Case:
    """Read Q, K, V and, if it is there, mask from a safetensors file.

    Raises:
        BadInput: the file is missing, is not a safetensors file, or lacks one of them.
    """
    try:
        return make_call(str(path), load_file(path))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        advice = "write one with safetensors.torch.save_file"
        raise BadInput(f"{path} is not a safetensors file ({error}): {advice}") from None


def read_case(fixtures: Path, name: str, calls: Collection[str]) -> Case:
    """Read a stored case of some adapters, which has what is right.

    Raises:
        BadInput: there is no such case.
        CaseError: its file is damaged.
    """
    names = list_cases(fixtures, calls)
    if name not in names:
        near, *_ = get_close_matches(name, names, 1, 0.0)
        raise BadInput(f"there is no case {name}{' of attention' * (len(calls) == 1)}: is it {near}?")
    return load_case(fixtures, name)


@cache
def find_steps() -> dict[str, tuple[str, Follow]]:
    """For each adapter whose right program ships in steps: its problem, and those."""
    rooms = [path.parent.name for path in sorted(FOLDER.glob("*/__init__.py"))]
    return {call: (problem, steps) for problem in rooms for call, steps in load_room(problem).steps.items()}


def list_earlier(root: Path, problem: str) -> list[Case]:
    """The stored cases of the problems that one builds on; none outside an assignment."""
    problems = load_problems(root) if (root / FILE_NAME).exists() else {}
    needs = find_needs(problems, problem) if problem in problems else []
    names = [name for need in needs for name in list_cases(root / "fixtures", load_room(need).steps)]
    return [load_case(root / "fixtures", name) for name in names]


def list_cases(fixtures: Path, calls: Collection[str]) -> list[str]:
    """The names of the stored cases of some adapters, one adapter after the other, plain folders first.

    Raises:
        CaseError: a file is damaged.
    """
    names = sorted(
        case_names(fixtures, "*/*"), key=lambda name: ("-" in name.partition("/")[0], name.partition("/")[0])
    )
    return [name for call in calls for name in names if load_case(fixtures, name).call == call]
