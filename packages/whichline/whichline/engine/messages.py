"""What errors of Python, torch and einops mean, and what a tutor would ask about them."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from traceback import walk_tb
from typing import NamedTuple

from torch import Tensor

from whichline.engine.compare import add_article

MAX_TEXT = 4_000  # characters that are searched: with many more, some patterns would take minutes
LONGEST = 160  # characters of a message in one line
HINT = re.compile(
    r"(?:Hint: |(?=(?:If you|Use|Consider|Please|You can|You should|Did you mean|Try)\b))(.{1,200}?[.?])(?=\s|$)"
)
FOLLOWED = "anomaly detection"  # torch advises it; the position that we report is already its result

EACH = "return a gradient, or None, for each"
IMPORTS = {
    "torch": "import torch",
    "math": "import math",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "Tensor": "from torch import Tensor",
    "einsum": "from einops import einsum",
    "rearrange": "from einops import rearrange",
    "functional_call": "from torch.func import functional_call",
    "np": "import numpy as np",
}


def _explain_state_dict(match: re.Match[str]) -> list[str]:
    module, text = match.groups()
    lines = [f"the weights do not fit {module}"]
    for label, what in (("Missing", f"{module} expected"), ("Unexpected", "the adapter gave")):
        if keys := re.search(rf"{label} key\(s\) in state_dict: (.*?)\. ", f"{text} "):
            lines.append(f"  {what} {keys[1]}")
    sizes = r"size mismatch for (\S+): .*?torch\.Size\((.*?)\) from.*?torch\.Size\((.*?)\)"
    for name, came, expected in re.findall(sizes, text):
        transposed = came == "[{1}, {0}]".format(*expected.strip("[]").split(", ")) if "," in expected else False
        lines.append(f"  {name}: got {came}, expected {expected}" + (": is it transposed?" if transposed else ""))
    key = "a key is the name of the attribute that holds the parameter, as in self.weight -> weight"
    return [*lines, *[key] * ("key(s)" in text)]


def _explain_product(match: re.Match[str]) -> list[str]:
    rows, inner, other, columns = match.groups()
    lines = [f"got a product of ({rows}, {inner}) and ({other}, {columns}), expected {inner} = {other}"]
    return [*lines, "the second would fit if it were transposed"] if inner == columns else lines


def _explain_product_of_batches(match: re.Match[str]) -> list[str]:
    expected, inner, batch, other = match.groups()
    line = f"got ({batch}, {other}, ...) on the right of a product, expected ({expected}, {inner}, ...)"
    if inner == other:
        return [f"{line}: this product does not broadcast {batch} to {expected}"]
    return [f"{line}: should an axis be transposed?"]


def _explain_unknown_name(match: re.Match[str]) -> list[str]:
    return [f"add `{IMPORTS[match[1]]}` at the top of the file"] if match[1] in IMPORTS else []


def _explain_changed(match: re.Match[str]) -> list[str]:
    times = int(match[1]) - int(match[2])
    count = "once" if times == 1 else f"{times} times"
    return [f"a gradient needs the old value of this tensor, which was changed in place {count} since"]


class Rule(NamedTuple):
    """What is known about some errors."""

    pattern: str  # is found in "KIND: MESSAGE"
    # What the error means: a text with the groups of the match as {0}, {1}, or a function of the match; "" if the
    # message is clear enough.
    means: str | Callable[[re.Match[str]], list[str]] = ""
    ask: str | None = None  # what a tutor would ask; None leaves the question to the caller


DEFINED = "Which file or package should define that name, and how is it spelt there?"
BEFORE = "Which line should define that name, and does it run before this one?"
OPERAND_DTYPES = "Which dtype does each tensor in this line have, and which one does this operation take?"
INDICES = "Which indices are there along that axis, and which one does this line ask for?"
SIZES = r"\b(?:shape|size|dimension|axis|axes|pattern|einsum)"
OF_DTYPES = re.compile(r"dtype|scalar type|used as indices|[bB]oolean(?! value)|not implemented for '")


def _explain_gradients(match: re.Match[str]) -> list[str]:
    expected, came = match.groups()
    values = f"{came} value{'s' * (came != '1')}"
    return [f"`backward` returns {values}, but `forward` has {expected} arguments after `ctx`: {EACH}"]


RULES = (
    Rule(r"Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)", _explain_gradients, ""),
    Rule(r"^SyntaxError.*null bytes", "this file is not UTF-8 text: save it again as UTF-8, not as UTF-16", ask=""),
    Rule(r"^(Syntax|Indentation|Tab)Error", ask=""),
    Rule(
        r"^SystemExit",
        'this ends Python: leave it out, or put it below `if __name__ == "__main__":`, which holds only when you run '
        "the file itself",
        ask="",
    ),
    Rule(r"^BdbQuit", "`breakpoint()` needs a terminal; `uv run pytest` gives it one, the board does not"),
    Rule(r"^ModuleNotFoundError: No module named 'adapters'", "adapters.py is missing: take it again from the handout"),
    Rule(r"^ModuleNotFoundError", ask=DEFINED),
    Rule(
        r"^ImportError: cannot import name '(\w+)' from '([\w.]+)'",
        "{1} does not define {0}: is the name spelt the same in both files?",
        DEFINED,
    ),
    Rule(r"^ImportError", ask=DEFINED),
    Rule(r"^NameError: name '(\w+)' is not defined", _explain_unknown_name, BEFORE),
    Rule(r"^(Name|UnboundLocal)Error", ask=BEFORE),
    Rule(
        r"^NotImplementedError: Module \[(\w+)\] is missing the required \"forward\"",
        "{0} has no method called `forward`: check the spelling of its `def`",
    ),
    Rule(
        r"Error\(s\) in loading state_dict for (\w+):(.*)",
        _explain_state_dict,
        "What are your module's parameters called, and what does your adapter call them?",
    ),
    Rule(r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _explain_product),
    Rule(r"batch2 tensor to be: \[(\d+), (\d+)\] but got: \[(\d+), (\d+)\]", _explain_product_of_batches),
    Rule(
        r"tensor a \((\d+)\) must match .* tensor b \((\d+)\) at non-singleton dimension (\d+)",
        "got sizes {0} and {1} along axis {2}, expected equal sizes (or 1): name the axes of both",
    ),
    Rule(
        r"expanded size of the tensor \((\d+)\) must match .* size \((\d+)\) at non-singleton dimension (\d+)",
        "got size {1} along axis {2}, expected {0}",
    ),
    Rule(
        r"shape '(.*?)' is invalid for input of size (\d+)",
        "the shape {0} does not hold {1} numbers: multiply its sizes and compare",
    ),
    Rule(
        r"multiple values for keys \[(.*?)\], which are tied",
        "these names belong to the same parameter: the list `[layer] * 3` holds one layer three times",
        "How many layers does this make, and how many should it?",
    ),
    Rule(
        r"before Module\.__init__\(\)",
        "this module is not set up yet: is `super().__init__()` the first line of its __init__?",
        "",
    ),
    Rule(
        r"leaf Variable that requires grad",
        "autograd tracks this tensor: make a new one, or use `torch.no_grad()` to set the numbers of a parameter",
    ),
    Rule(
        r"cannot assign '.*?' as parameter",
        "a module's parameter can only be set to a Parameter; `functional_call` sets it to a tensor for one call",
        "",
    ),
    Rule(
        r"Boolean value of Tensor with more than one value",
        "a condition needs one truth value: `is None` asks whether there is a tensor; `&` and `|` join masks",
        "",
    ),
    Rule(
        r"only one element tensors can be converted",
        "this function takes one number, but the tensor has several; use a function of torch, such as `torch.exp`",
        "",
    ),
    Rule(
        r"view size is not compatible",
        ask="How does a transposed tensor lie in memory, and what does view need that reshape does not?",
    ),
    Rule(
        r"shape of the mask .* does not match the shape of the indexed tensor",
        ask="`x[mask]` does not broadcast the mask: which operations do?",
    ),
    Rule(
        r"inplace operation: .*is at version (\d+); expected version (\d+)",
        _explain_changed,
        "Which line, this one or a later one, changes in place what a gradient needs?",
    ),
    Rule(r"out of (bounds|range)", ask=INDICES),
    Rule(r"in-?place", ask="Which operation in this line changes a tensor in place? Whose tensor is it?"),
    Rule(
        r"tensors used as indices must be|boolean (tensor|masks)|Boolean-type|not implemented for '", ask=OPERAND_DTYPES
    ),
    Rule(
        r"^TypeError: [\w.<>]+\(\) (?:missing|takes|got an unexpected|got multiple|received)",
        ask="Which arguments does the `def` name, and which does the call pass?",
    ),
)


def explain_message(kind: str, text: str) -> list[str]:
    """Say in a few lines what an error means; nothing if its own message is clear enough."""
    text = f"{kind}: {text[:MAX_TEXT]}"
    for rule in RULES:
        if rule.means and (match := re.search(rule.pattern, text, re.DOTALL)):
            return [rule.means.format(*match.groups())] if isinstance(rule.means, str) else rule.means(match)
    return []


def ask_about(kind: str, text: str) -> str | None:
    """What a tutor would ask about an error, "" for no question; None leaves the question to the caller."""
    text = f"{kind}: {text[:MAX_TEXT]}"
    return next((rule.ask for rule in RULES if rule.ask is not None and re.search(rule.pattern, text, re.DOTALL)), None)


def shorten(message: str) -> tuple[str, str]:
    """A message in one line, and the advice that torch gives in it."""
    kind, colon, text = message.partition(": ")
    hint = HINT.search(text)
    advice = "" if hint is None or FOLLOWED in hint[1] else hint[1]
    text = re.sub(r"(submodule `[\w.]+`): \[.*", r"\1 is no torch.nn.Module", text, flags=re.DOTALL)
    text = (text[: hint.start()].strip() if hint else text).removesuffix(", but expected one of:")
    if len(text) > LONGEST:
        text = re.split(r"\.\s+(?=[A-Z])|, which is |: (?=\[)", text)[0]
    short = f"{text[:LONGEST].rpartition(' ')[0] or text[:LONGEST]} …" if len(text) > LONGEST else text
    return kind + colon + short.removesuffix("."), advice


# einops's message about one tensor and its pattern.
EINOPS = re.compile(r"pattern \"(.*?)\"\.\s*Input tensor shape: torch\.Size\(\[(.*?)\]\)\..*?\n\s*(\S[^\n]*)$", re.S)


def explain_pattern(error: BaseException) -> list[str]:
    """Say, in a line each, where a pattern does not fit the shapes of the tensors; nothing about any other error."""
    for frame, _ in walk_tb(error.__traceback__):
        values = frame.f_locals
        if frame.f_code.co_name == "einsum":
            given = values.get("tensors_and_pattern") or values.get("args") or ()  # einops's name and torch's
            shapes = [tuple(x.shape) for x in given if isinstance(x, Tensor)]
            if (patterns := [x for x in given if isinstance(x, str)]) and len(shapes) == len(given) - 1:
                return list(_explain_einsum(patterns[0], shapes, "tensors_and_pattern" in values))
    if not (found := EINOPS.search(str(error))):
        return []
    pattern, sizes, why = found.groups()
    left, shape = pattern.partition("->")[0].strip(), tuple(map(int, sizes.split(",") if sizes else []))
    if said := _explain_count(left, re.findall(r"\([^)]*\)|\.\.\.|\w+", left), shape):
        return [said]
    return [f"`{pattern}` does not fit the shape {shape}: {why[0].lower()}{why[1:].removesuffix('.')}"]


def _explain_einsum(pattern: str, shapes: Sequence[tuple[int, ...]], spaced: bool) -> Iterator[str]:
    left, _, right = pattern.partition("->")
    operands = [each.strip() for each in left.split(",")]
    named = [re.findall(r"\.\.\.|\w+" if spaced else r"\.\.\.|\w", each) for each in operands]
    if len(operands) != len(shapes):
        yield f"`{pattern}` is for {len(operands)} tensors, and the call passes {len(shapes)}"
        return
    seen: dict[str, tuple[int, str]] = {}
    for operand, names, shape in zip_longest(operands, named, shapes):
        if twice := next((name for name in names if names.count(name) > 1), None):
            yield f"`{operand}` names `{twice}` twice: that asks for the diagonal of two axes of the same size"
        if said := _explain_count(operand, names, shape):
            yield said
            continue
        rest = len(shape) - len(names) + 1
        at = names.index("...") if "..." in names else len(names)
        sizes = [*zip(names[:at], shape, strict=False), *zip(names[at + 1 :], shape[at + rest :], strict=False)]
        for name, size in sizes:
            before, where = seen.setdefault(name, (size, f"`{operand}`, {shape}"))
            if size != before:
                yield f"`{name}` is {before} in {where}, and {size} in `{operand}`, {shape}"
    for name in re.findall(r"\w+" if spaced else r"\w", right):
        if not any(name in names for names in named):
            yield f"`{name}` appears after the arrow but in no operand"


def _explain_count(operand: str, names: Sequence[str], shape: tuple[int, ...]) -> str:
    count = len(names) - ("..." in names)
    if count == len(shape) or ("..." in names and count < len(shape)):
        return ""
    axes = f"{count} {'axis' if count == 1 else 'axes'}"
    least = "at least " * ("..." in names)
    return f"`{operand}` names {least}{axes}; the tensor has {len(shape)}: {shape}"


# Annotations: jaxtyping's twenty lines in two.

DTYPES = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex", "bool": "bool"}


def explain_annotation(text: str) -> list[str]:
    """Say which value of which function contradicts its annotation, and along which axis; nothing for other errors."""
    checked = re.match(r"Type-check error whilst checking the (return value|parameters) of ([\w.<>]+)\.", text)
    value = re.search(r"^Actual value: (.*)$", text, re.MULTILINE)
    expected = re.search(r"^Expected type: .*?(\w+)\[(?:torch\.)?Tensor, ['\"] ?(.*?)['\"]\]", text, re.MULTILINE)
    if not (checked and value):
        return []
    parameter = re.search(r"typechecking parameter '(\w+)'", text)
    function = _shorten_name(checked[2])
    subject = f"{function} got" if checked[1] == "parameters" else f"{function} returned"
    what = f" for {parameter[1]}" if parameter else ""
    tensor = re.fullmatch(r"([a-z]+)(\d*)\[([\d,]*)\]\(torch\)", value[1])
    if not expected:
        wanted = re.search(r"^Expected type: (?:<class ')?(.*?)(?:'>)?\.?$", text, re.MULTILINE)
        return [f"{subject} {value[1]}{what}", f"expected {wanted[1] if wanted else 'another type'}"]
    kind, axes = expected[1], expected[2]
    if not tensor:
        return [f"{subject} {_describe_value(value[1])}{what}", f"expected a tensor ({axes})"]
    shape = [int(size) for size in tensor[3].split(",") if size]
    dtype = f"{DTYPES.get(tensor[1], tensor[1])}{tensor[2]}"
    if kind != "Shaped" and not dtype.lower().startswith((kind.lower(), f"b{kind.lower()}")):
        return [f"{subject} a tensor of {dtype}{what}, expected {kind.lower()}"]
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+)=(\d+)$", text, re.MULTILINE)}
    came = f"{subject} a tensor of shape {tuple(shape)}{what}, expected ({axes})"
    return [came, *_find_axis(shape, axes.split(), sizes)]


def _find_axis(shape: list[int], axes: list[str], sizes: dict[str, int]) -> list[str]:
    """Describe the first axis, from the right, whose name has another size elsewhere in the call."""
    named = [axis for axis in axes if axis != "..." and not axis.startswith("*")]
    if len(shape) < len(named):
        return [f"it has {len(shape)} axes where {len(named)} have a name: is one missing?"]
    if len(named) == len(axes) != len(shape):
        return [f"it has {len(shape)} axes where there should be {len(axes)}"]
    for size, axis in zip(reversed(shape), reversed(named), strict=False):
        known = sizes.get(axis.lstrip("#"))
        if known not in (None, size) and not (axis.startswith("#") and size == 1):
            return [f"axis {axis.lstrip('#')}: got {size}, expected {known}, its size elsewhere in this call"]
    return []


def _describe_value(value: str) -> str:
    if value == "None":
        return "None (is a return missing?)"
    if value.startswith(("(", "[")):
        return f"a {'tuple' if value[0] == '(' else 'list'} (return the tensor alone)"
    if value.endswith("(numpy)"):
        return "a NumPy array (stay with torch, or no gradient flows)"
    if module := re.match(r"([A-Z]\w*)\(", value):
        return f"the module {module[1]} (call it with its input)"
    return add_article(value) if value.isidentifier() else value


def _shorten_name(name: str) -> str:
    """`function` of "package.module.function", `Class.method` of a method."""
    parts = name.split(".")
    return ".".join(parts[-2:] if len(parts) > 1 and parts[-2][:1].isupper() else parts[-1:])
