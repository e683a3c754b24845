"""Errors of student code in plain words: what came, what was expected, what to do.

Most failures are not wrong numbers but parts that do not fit together: names, shapes, keywords.
"""

import re
from bdb import BdbQuit
from collections.abc import Callable
from difflib import get_close_matches

from torch import nn

Match = re.Match[str]


def in_plain_words(error: BaseException) -> list[str]:
    """Explain an error in a few lines, or not at all when its own message says it best."""
    if isinstance(error, AttributeError) and error.name is not None:
        return _missing_attribute(error)
    for kind, pattern, explain in RULES:
        if isinstance(error, kind) and (match := re.search(pattern, str(error), re.DOTALL)):
            return explain(match)
    return []


def _missing_attribute(error: AttributeError) -> list[str]:
    if error.obj is None:
        return [
            f"got None where something with `{error.name}` was expected: is a `return` missing, or is it mask=None?"
        ]
    if isinstance(error.obj, nn.Module):
        what, inside = type(error.obj).__name__, vars(error.obj)
        if "_parameters" not in inside:
            return [f"{what} was never set up as a module: is `super().__init__()` the first line of __init__?"]
        names = [name for kind in ("_parameters", "_modules", "_buffers") for name in inside[kind]]
    else:
        names = get_close_matches(str(error.name), dir(error.obj))
        what = getattr(error.obj, "__name__", type(error.obj).__name__)
    return [
        f"{what} has no {error.name}" + (f"; it has {', '.join(names)}" if names else ""),
        "check its spelling, and whether __init__ sets it",
    ]


def _state_dict(match: Match) -> list[str]:
    module, text = match.groups()
    lines = [f"the weights do not fit {module}"]
    for label, what in (("Missing", f"{module} expected"), ("Unexpected", "the adapter gave")):
        if keys := re.search(rf"{label} key\(s\) in state_dict: (.*?)\. ", f"{text} "):
            lines.append(f"  {what} {keys[1]}")
    for name, came, expected in re.findall(
        r"size mismatch for (\S+): .*?torch\.Size\((.*?)\) from.*?torch\.Size\((.*?)\)", text
    ):
        transposed = came == "[{1}, {0}]".format(*expected.strip("[]").split(", ")) if "," in expected else False
        lines.append(f"  {name}: got {came}, expected {expected}" + (": is it transposed?" if transposed else ""))
    return [*lines, "a key is the name of the attribute that holds the parameter, as in self.weight -> weight"]


def _product(match: Match) -> list[str]:
    rows, inner, other, columns = match.groups()
    lines = [f"got a product of ({rows}, {inner}) and ({other}, {columns}), expected {inner} = {other}"]
    return [*lines, "the second would fit if it were transposed"] if inner == columns else lines


def _batched_product(match: Match) -> list[str]:
    expected, came = match.groups()
    return [f"got ({came}, ...) on the right of a product, expected ({expected}, ...): should an axis be transposed?"]


def _broadcast(match: Match) -> list[str]:
    a, b, axis = match.groups()
    return [f"got tensors of {a} and {b} along axis {axis}, expected equal sizes (or 1): name the axes of both"]


def _unexpected_keyword(match: Match) -> list[str]:
    function, keyword = match.groups()
    return [f"the `def` of {function} has no argument {keyword}: compare it with the call"]


def _missing_argument(match: Match) -> list[str]:
    function, names = match.groups()
    return [f"{function} needs {names}, but the call does not pass it"]


def _too_many(match: Match) -> list[str]:
    function, most, came = match.groups()
    return [f"{function} takes {most} arguments (self counts), got {came}: compare the call with the `def`"]


def _no_forward(match: Match) -> list[str]:
    return [f"{match[1]} has no method called `forward`: look at how its `def` is spelt"]


def _no_name(match: Match) -> list[str]:
    name = match[1]
    if name not in IMPORTS:
        return []
    return [f"add `{IMPORTS[name]}` at the top of the file"]


def _import(match: Match) -> list[str]:
    name, module = match.groups()
    return [f"{module} does not define {name}: is the name spelt the same in both files?"]


def _reshape(match: Match) -> list[str]:
    shape, size = match.groups()
    return [f"the shape {shape} does not hold {size} numbers: multiply its sizes and compare"]


IMPORTS = {
    "torch": "import torch",
    "math": "import math",
    "nn": "from torch import nn",
    "Tensor": "from torch import Tensor",
    "einsum": "from einops import einsum",
    "rearrange": "from einops import rearrange",
    "functional_call": "from torch.func import functional_call",
    "np": "import numpy as np",
}

RULES: tuple[tuple[type[BaseException], str, Callable[[Match], list[str]]], ...] = (
    (RuntimeError, r"Error\(s\) in loading state_dict for (\w+):(.*)", _state_dict),
    (RuntimeError, r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _product),
    (RuntimeError, r"batch2 tensor to be: \[(.*?)\] but got: \[(.*?)\]", _batched_product),
    (RuntimeError, r"tensor a \((\d+)\) must match .* tensor b \((\d+)\) at non-singleton dimension (\d+)", _broadcast),
    (RuntimeError, r"shape '(.*?)' is invalid for input of size (\d+)", _reshape),
    (TypeError, r"([\w.]+\(\)) got an unexpected keyword argument '(\w+)'", _unexpected_keyword),
    (TypeError, r"([\w.]+\(\)) missing \d+ required .*arguments?: (.*)", _missing_argument),
    (TypeError, r"([\w.]+\(\)) takes (.*) positional arguments? but (\d+) ", _too_many),
    (SyntaxError, r"null bytes", lambda match: ["a file is not UTF-8 text: save it again as UTF-8, not as UTF-16"]),
    (NotImplementedError, r"Module \[(\w+)\] is missing the required \"forward\"", _no_forward),
    (NameError, r"name '(\w+)' is not defined", _no_name),
    (
        BdbQuit,
        "",
        lambda match: ["`breakpoint()` needs a terminal; `uv run pytest` gives it one, `cs336 check` does not"],
    ),
    (
        ModuleNotFoundError,
        "No module named 'adapters'",
        lambda match: ["adapters.py is missing: take it again from the handout"],
    ),
    (ImportError, r"cannot import name '(\w+)' from '([\w.]+)'", _import),
)
