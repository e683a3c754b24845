"""The functions of torch and einops that students must write themselves.

The handout, the students' own check and the grader go by this list. It is read off the namespaces of the torch that is
installed. assignment.toml says what of them may be used after all, and in which problem which functions do the work.
"""

import re
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import einops.layers.torch
import torch
import torch._decomp.decompositions
import torch._refs
from torch import Tensor, nn
from torch.distributions.transforms import SoftmaxTransform
from torch.nn import functional

# The problem in which a function does the work, by what comes first in its name. What else is forbidden has none.
FILES = [folder / "assignment.toml" for folder in Path(__file__).parents[1:3]]  # in a wheel, the kit has one inside
ASSIGNMENT = tomllib.loads(next(filter(Path.exists, FILES)).read_text(encoding="utf-8"))
ALLOWED = ASSIGNMENT.get("allowed", [])
WORKS = [each for each in ASSIGNMENT["problem"] if "work" in each and not each.get("left_out")]
HOMES = {each["id"]: each["work"] for each in WORKS}
# Those whose work torch's own C++ code may do without a call from Python.
IN_KERNELS = frozenset(each["id"] for each in WORKS if each.get("in_kernels"))
WORK = re.compile("|".join(f"(?P<{problem}>{names})" for problem, names in HOMES.items()) or "(?!)")


def home(function: str) -> str | None:
    """The problem in which a forbidden function does the work, if there is one."""
    found = WORK.search(function.rpartition(".")[2].lower())
    return found.lastgroup if found else None


def work_of(function: str) -> str:
    """Name what a forbidden function does: the work of a problem, or something of its own, under its own name."""
    return home(function) or function


def _is_allowed(name: str) -> bool:
    return any(fnmatchcase(name, allowed) for allowed in ALLOWED)


def _layers(module: Any, prefix: str) -> dict[str, type[nn.Module]]:
    found = {name: getattr(module, name) for name in dir(module) if not _is_allowed(name)}
    return {
        prefix + name: layer
        for name, layer in found.items()
        if isinstance(layer, type) and issubclass(layer, nn.Module)
    }


def _functions(module: Any, prefix: str, is_forbidden: Callable[[str], bool]) -> dict[str, Callable[..., Any]]:
    found = {name: getattr(module, name) for name in dir(module) if is_forbidden(name)}
    return {
        prefix + name: function
        for name, function in found.items()
        if callable(function) and not isinstance(function, type)
    }


def _is_functional(name: str) -> bool:
    """Test whether torch.nn.functional itself has it and does not only import it, and it is not allowed."""
    owners = (functional.__name__, "torch", "torch._C._nn")
    return (
        not (name.startswith("_") or _is_allowed(name))
        and getattr(getattr(functional, name, None), "__module__", None) in owners
    )


def _is_forbidden(name: str) -> bool:
    """Test whether it may not be used from torch, whichever namespace it is in.

    It is a function of torch.nn.functional and no plain function of a tensor, as torch.tanh, which is a method, too.
    Or it has the name of what is a problem's work. Backward passes have none of their own.
    """
    plain = hasattr(functional, name) and _is_functional(name) and not hasattr(Tensor, name)
    return plain or (home(name) is not None and "backward" not in name)


def operator_name(name: str) -> str:
    """An operator as it is written, "torch.ops.aten.linear", from the names that torch has for it and its overloads."""
    return "torch.ops." + ".".join(name.replace("::", ".").split(".")[:2])


def _operators() -> frozenset[str]:
    names = set(map(operator_name, torch._C._dispatch_get_all_op_names()))
    # Those of torch.onnx.ops and flex_attention are registered when somebody imports them.
    names |= {"torch.ops.onnx.Attention", "torch.ops.onnx.RotaryEmbedding", "torch.ops.flex_attention"}
    return frozenset(name for name in names if _is_forbidden(name.rpartition(".")[2]))


LAYERS = _layers(nn, "torch.nn.") | _layers(einops.layers.torch, "einops.layers.torch.")
# The classes, each with the method that does the work.
METHODS = {name: (layer, "forward") for name, layer in LAYERS.items()}
METHODS |= {"torch.distributions.SoftmaxTransform": (SoftmaxTransform, "_call")}
FUNCTIONS = {
    **_functions(torch, "torch.", _is_forbidden),
    **_functions(Tensor, "torch.Tensor.", lambda name: home(name) is not None),
    **_functions(torch.special, "torch.special.", _is_forbidden),
    **_functions(torch.sparse, "torch.sparse.", _is_forbidden),
    **_functions(torch.masked, "torch.masked.", _is_forbidden),
    **_functions(torch._refs, "torch._refs.", _is_forbidden),
    **_functions(torch._decomp.decompositions, "torch._decomp.decompositions.", _is_forbidden),
    **_functions(functional, "torch.nn.functional.", _is_functional),  # the last name of a function is the one shown
}
OPERATORS = _operators()
FORBIDDEN = frozenset((*METHODS, *FUNCTIONS, *OPERATORS))
