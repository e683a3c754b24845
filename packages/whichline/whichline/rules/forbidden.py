"""The functions of torch and einops that students must write themselves.

The handout, the students' own check and the grader use this list. It is built from the namespaces of the installed
torch. assignment.toml states the exceptions, and which functions do the work of which problem.
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
    """The functions that students of one assignment may not use."""

    allowed: tuple[str, ...]  # names that are allowed after all; * and ? are wildcards
    homes: Mapping[str, str]  # by problem, a regular expression that finds the names of functions that do its work
    in_kernels: frozenset[str]  # the problems whose work torch's own C++ code may do without a call from Python
    late: frozenset[str]  # operators that torch registers only when something imports them

    def find_problem(self, function: str) -> str | None:
        """The problem whose work a forbidden function does, if there is one."""
        found = self._work.search(function.rpartition(".")[2].lower())
        return found.lastgroup if found else None

    def name_work(self, function: str) -> str:
        """The id of the problem whose work a forbidden function does; otherwise its own name."""
        return self.find_problem(function) or function

    @cached_property
    def methods(self) -> dict[str, tuple[type, str]]:
        """The forbidden classes, each with the method that does the work."""
        layers = self._find_classes(nn.Module, nn, "torch.nn.")
        layers |= self._find_classes(nn.Module, einops.layers.torch, "einops.layers.torch.")
        found: dict[str, tuple[type, str]] = {name: (layer, "forward") for name, layer in layers.items()}
        changing = self._find_classes(transforms.Transform, transforms, "torch.distributions.")
        return found | {name: (each, "_call") for name, each in changing.items() if self.find_problem(name)}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The forbidden functions; if one has several names, the last one is shown."""
        found = _find_functions(torch, "torch.", self._is_forbidden)
        found |= _find_functions(Tensor, "torch.Tensor.", lambda name: self.find_problem(name) is not None)
        for space in (torch.special, torch.sparse, torch.masked, torch._refs, torch._decomp.decompositions):
            found |= _find_functions(space, f"{space.__name__}.", self._is_forbidden)
        return found | _find_functions(functional, "torch.nn.functional.", self._is_functional)

    @cached_property
    def operators(self) -> frozenset[str]:
        """The forbidden operators, as Python code names them: "torch.ops.aten.linear"."""
        names = self.late.union(map(name_operator, torch._C._dispatch_get_all_op_names()))
        return frozenset(name for name in names if self._is_forbidden(name.rpartition(".")[2]))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of everything that is forbidden."""
        return self.operators.union(self.methods, self.functions)

    @cached_property
    def _work(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<{problem}>{names})" for problem, names in self.homes.items()) or "(?!)")

    def _find_classes(self, base: type, module: Any, prefix: str) -> dict[str, type]:
        found = ((name, getattr(module, name)) for name in dir(module) if not self._is_allowed(name))
        return {prefix + name: value for name, value in found if isinstance(value, type) and issubclass(value, base)}

    def _is_allowed(self, name: str) -> bool:
        return any(fnmatchcase(name, allowed) for allowed in self.allowed)

    def _is_functional(self, name: str) -> bool:
        """Tell whether torch.nn.functional defines this name itself, and it is not allowed."""
        owners = (functional.__name__, "torch", "torch._C._nn")
        is_defined = getattr(getattr(functional, name, None), "__module__", None) in owners
        return is_defined and not (name.startswith("_") or self._is_allowed(name))

    def _is_forbidden(self, name: str) -> bool:
        """Tell whether a name is forbidden in any namespace of torch.

        It is if torch.nn.functional defines it and tensors have no such method (unlike torch.tanh), or if it does the
        work of a problem. Backward passes are allowed.
        """
        plain = hasattr(functional, name) and self._is_functional(name) and not hasattr(Tensor, name)
        return plain or (self.find_problem(name) is not None and "backward" not in name)


@cache
def load_forbidden(assignment: Path) -> Forbidden:
    """Read what is forbidden from a valid `assignment.toml`; a problem that is left out forbids nothing."""
    stated = tomllib.loads(assignment.read_text(encoding="utf-8"))
    works = [each for each in stated["problem"] if "work" in each and not each.get("left_out")]
    return Forbidden(
        tuple(stated.get("allowed", ())),
        {each["id"]: each["work"] for each in works},
        frozenset(each["id"] for each in works if each.get("in_kernels")),
        frozenset(stated.get("forbidden", ())),
    )


def name_operator(name: str) -> str:
    """An operator as Python code names it, "torch.ops.aten.linear", from torch's name for it or for an overload."""
    return "torch.ops." + ".".join(name.replace("::", ".").split(".")[:2])


def _find_functions(module: Any, prefix: str, is_forbidden: Callable[[str], bool]) -> dict[str, Function]:
    found = {name: getattr(module, name) for name in dir(module) if is_forbidden(name)}
    return {prefix + name: each for name, each in found.items() if callable(each) and not isinstance(each, type)}
