"""The functions of torch and einops that students must write themselves.

The handout, the students' own check and the grader go by this list. It is read off the namespaces of the torch that is
installed. assignment.toml says what of them may be used after all, and in which problem which functions do the work.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import einops.layers.torch
import torch
import torch._decomp.decompositions
import torch._refs
from torch import Tensor, nn
from torch.distributions import transforms
from torch.nn import functional

Function = Callable[..., Any]


@dataclass(frozen=True)
class Forbidden:
    """The work that the students of one assignment must do themselves.

    Args:
        allowed: names that may be used after all; they may hold * and ?, as names of files do.
        homes: for each problem whose work torch does, how the names of such functions begin, a regular expression.
        in_kernels: the problems whose work torch's own C++ code may do without a call from Python.
        late: operators that torch registers only when something imports them.
    """

    allowed: tuple[str, ...]
    homes: Mapping[str, str]
    in_kernels: frozenset[str]
    late: frozenset[str]

    def home(self, function: str) -> str | None:
        """The problem in which a forbidden function does the work, if there is one."""
        found = self._work.search(function.rpartition(".")[2].lower())
        return found.lastgroup if found else None

    def work_of(self, function: str) -> str:
        """Name what a forbidden function does: the work of a problem, or something of its own, under its own name."""
        return self.home(function) or function

    @cached_property
    def methods(self) -> dict[str, tuple[type, str]]:
        """The classes, each with the method that does the work."""
        layers = self._classes(nn.Module, nn, "torch.nn.") | self._classes(
            nn.Module, einops.layers.torch, "einops.layers.torch."
        )
        found: dict[str, tuple[type, str]] = {name: (layer, "forward") for name, layer in layers.items()}
        for name, transform in self._classes(transforms.Transform, transforms, "torch.distributions.").items():
            if self.home(name):
                found[name] = (transform, "_call")
        return found

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions; the last name of a function is the one that is shown."""
        found = _functions(torch, "torch.", self._is_forbidden)
        found |= _functions(Tensor, "torch.Tensor.", lambda name: self.home(name) is not None)
        for space in (torch.special, torch.sparse, torch.masked, torch._refs, torch._decomp.decompositions):
            found |= _functions(space, f"{space.__name__}.", self._is_forbidden)
        return found | _functions(functional, "torch.nn.functional.", self._is_functional)

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators, as they are written: "torch.ops.aten.linear"."""
        names = self.late.union(map(operator_name, torch._C._dispatch_get_all_op_names()))
        return frozenset(name for name in names if self._is_forbidden(name.rpartition(".")[2]))

    @cached_property
    def names(self) -> frozenset[str]:
        """The name of everything that is forbidden."""
        return self.operators.union(self.methods, self.functions)

    @cached_property
    def _work(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<{problem}>{names})" for problem, names in self.homes.items()) or "(?!)")

    def _classes(self, base: type, module: Any, prefix: str) -> dict[str, type]:
        found = ((name, getattr(module, name)) for name in dir(module) if not self._is_allowed(name))
        return {prefix + name: value for name, value in found if isinstance(value, type) and issubclass(value, base)}

    def _is_allowed(self, name: str) -> bool:
        return any(fnmatchcase(name, allowed) for allowed in self.allowed)

    def _is_functional(self, name: str) -> bool:
        """Test whether torch.nn.functional itself has it and does not only import it, and it is not allowed."""
        owners = (functional.__name__, "torch", "torch._C._nn")
        return (
            not (name.startswith("_") or self._is_allowed(name))
            and getattr(getattr(functional, name, None), "__module__", None) in owners
        )

    def _is_forbidden(self, name: str) -> bool:
        """Test whether it may not be used from torch, whichever namespace it is in.

        It is a function of torch.nn.functional and no plain function of a tensor, as torch.tanh, which is a method,
        too. Or it has the name of what is a problem's work. Backward passes have none of their own.
        """
        plain = hasattr(functional, name) and self._is_functional(name) and not hasattr(Tensor, name)
        return plain or (self.home(name) is not None and "backward" not in name)


@cache
def load_forbidden(assignment: Path) -> Forbidden:
    """Read what is forbidden from an `assignment.toml` that is right; a problem that is left out forbids nothing."""
    stated = tomllib.loads(assignment.read_text(encoding="utf-8"))
    works = [each for each in stated["problem"] if "work" in each and not each.get("left_out")]
    return Forbidden(
        tuple(stated.get("allowed", ())),
        {each["id"]: each["work"] for each in works},
        frozenset(each["id"] for each in works if each.get("in_kernels")),
        frozenset(stated.get("forbidden", ())),
    )


def operator_name(name: str) -> str:
    """An operator as it is written, "torch.ops.aten.linear", from the names that torch has for it and its overloads."""
    return "torch.ops." + ".".join(name.replace("::", ".").split(".")[:2])


def _functions(module: Any, prefix: str, is_forbidden: Callable[[str], bool]) -> dict[str, Function]:
    found = {name: getattr(module, name) for name in dir(module) if is_forbidden(name)}
    return {
        prefix + name: function
        for name, function in found.items()
        if callable(function) and not isinstance(function, type)
    }
