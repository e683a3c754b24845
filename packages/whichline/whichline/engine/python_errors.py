"""Errors of student code in plain words: what came, what was expected, what to do.

Most failures are not wrong numbers but parts that do not fit together: names, shapes, keywords.
"""

import re
from bdb import BdbQuit
from collections.abc import Callable
from difflib import get_close_matches

from torch import nn

MAX_TEXT = 4_000  # characters in which a pattern is looked for: of many more, some patterns would take minutes
Match = re.Match[str]


def in_plain_words(error: BaseException) -> list[str]:
    """Explain an error in a few lines, or not at all when its own message says it best."""
    if isinstance(error, AttributeError) and error.name is not None:
        return _missing_attribute(error)
    text = str(error)[:MAX_TEXT]
    for kind, pattern, explain in RULES:
        is_kind = isinstance(error, kind) or kind.__name__ == getattr(error, "type", "")  # raised in another process
        if is_kind and (match := re.search(pattern, text, re.DOTALL)):
            return [explain.format(*match.groups())] if isinstance(explain, str) else explain(match)
    return []


def _missing_attribute(error: AttributeError) -> list[str]:
    if error.obj is None:
        why = "is a `return` missing, or is it an argument that may be None?"
        return [f"got None where something with `{error.name}` was expected: {why}"]
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


def _product_of_batches(match: Match) -> list[str]:
    expected, inner, batch, other = match.groups()
    line = f"got ({batch}, {other}, ...) on the right of a product, expected ({expected}, {inner}, ...)"
    if inner == other:
        return [f"{line}: this product does not broadcast {batch} to {expected}"]
    return [f"{line}: should an axis be transposed?"]


def _no_name(match: Match) -> list[str]:
    return [f"add `{IMPORTS[match[1]]}` at the top of the file"] if match[1] in IMPORTS else []


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

FUNCTION = r"(?<![\w.])([\w.]+\(\))"  # looked for at its beginning alone, or a long word would take long

# The class of the error, what its message holds, and what that means: with the groups of the match in the place of
# numbers, or computed from them.
RULES: tuple[tuple[type[BaseException], str, str | Callable[[Match], list[str]]], ...] = (
    (RuntimeError, r"Error\(s\) in loading state_dict for (\w+):(.*)", _state_dict),
    (RuntimeError, r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _product),
    (
        RuntimeError,
        r"batch2 tensor to be: \[(\d+), (\d+)\] but got: \[(\d+), (\d+)\]",
        _product_of_batches,
    ),
    (
        RuntimeError,
        r"tensor a \((\d+)\) must match .* tensor b \((\d+)\) at non-singleton dimension (\d+)",
        "got sizes {0} and {1} along axis {2}, expected equal sizes (or 1): name the axes of both",
    ),
    (
        RuntimeError,
        r"expanded size of the tensor \((\d+)\) must match .* size \((\d+)\) at non-singleton dimension (\d+)",
        "got size {1} along axis {2}, expected {0}",
    ),
    (
        RuntimeError,
        r"shape '(.*?)' is invalid for input of size (\d+)",
        "the shape {0} does not hold {1} numbers: multiply its sizes and compare",
    ),
    (
        TypeError,
        FUNCTION + r" got an unexpected keyword argument '(\w+)'",
        "the `def` of {0} has no argument {1}: compare it with the call",
    ),
    (
        TypeError,
        FUNCTION + r" missing \d+ required .*arguments?: (.*)",
        "{0} needs {1}, but the call does not pass it",
    ),
    (
        TypeError,
        FUNCTION + r" takes (.*) positional arguments? but (\d+) ",
        "{0} takes {1} arguments (self counts), got {2}: compare the call with the `def`",
    ),
    (SyntaxError, r"null bytes", "this file is not UTF-8 text: save it again as UTF-8, not as UTF-16"),
    (
        SystemExit,
        "",
        'this ends Python: leave it out, or put it below `if __name__ == "__main__":`, which holds only when you run '
        "the file itself",
    ),
    (
        NotImplementedError,
        r"Module \[(\w+)\] is missing the required \"forward\"",
        "{0} has no method called `forward`: look at how its `def` is spelt",
    ),
    (NameError, r"name '(\w+)' is not defined", _no_name),
    (BdbQuit, "", "`breakpoint()` needs a terminal; `uv run pytest` gives it one, the board does not"),
    (ModuleNotFoundError, "No module named 'adapters'", "adapters.py is missing: take it again from the handout"),
    (
        ImportError,
        r"cannot import name '(\w+)' from '([\w.]+)'",
        "{1} does not define {0}: is the name spelt the same in both files?",
    ),
)
