"""A value that does not have the type of its annotation: jaxtyping's twenty lines in two."""

import re

from whichline.engine.compare import article

DTYPES = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex", "bool": "bool"}


def expected_and_got(error: BaseException) -> list[str]:
    """Tell which value of which function is not what its annotation says, and along which axis.

    Returns:
        A headline, and a line on the first axis or the dtype that does not fit; nothing if the error is another one.
    """
    if type(error).__name__ != "TypeCheckError":
        return []
    text = str(error)
    checked = re.match(r"Type-check error whilst checking the (return value|parameters) of ([\w.]+)\.", text)
    value = re.search(r"^Actual value: (.*)$", text, re.MULTILINE)
    expected = re.search(r"^Expected type: .*?(\w+)\[(?:torch\.)?Tensor, ['\"] ?(.*?)['\"]\]", text, re.MULTILINE)
    if not (checked and value):
        return []
    parameter = re.search(r"typechecking parameter '(\w+)'", text)
    function = _short(checked[2])
    subject = f"{function} got" if checked[1] == "parameters" else f"{function} returned"
    what = f" for {parameter[1]}" if parameter else ""
    tensor = re.fullmatch(r"([a-z]+)(\d*)\[([\d,]*)\]\(torch\)", value[1])
    if not expected:
        wanted = re.search(r"^Expected type: (?:<class ')?(.*?)(?:'>)?\.?$", text, re.MULTILINE)
        return [f"{subject} {value[1]}{what}", f"expected {wanted[1] if wanted else 'another type'}"]
    kind, axes = expected[1], expected[2]
    if not tensor:
        return [f"{subject} {_in_words(value[1])}{what}", f"expected a tensor ({axes})"]
    shape = [int(size) for size in tensor[3].split(",") if size]
    dtype = f"{DTYPES.get(tensor[1], tensor[1])}{tensor[2]}"
    if kind != "Shaped" and not dtype.lower().startswith((kind.lower(), f"b{kind.lower()}")):
        return [f"{subject} a tensor of {dtype}{what}, expected {kind.lower()}"]
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+)=(\d+)$", text, re.MULTILINE)}
    return [f"{subject} a tensor of shape {tuple(shape)}{what}, expected ({axes})", *_axis(shape, axes.split(), sizes)]


def _axis(shape: list[int], axes: list[str], sizes: dict[str, int]) -> list[str]:
    """The first axis, from the right, whose size is not what its name stands for elsewhere in the call."""
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


def _in_words(value: str) -> str:
    if value == "None":
        return "None (is a return missing?)"
    if value.startswith(("(", "[")):
        return f"a {'tuple' if value[0] == '(' else 'list'} (return the tensor alone)"
    if value.endswith("(numpy)"):
        return "a NumPy array (stay with torch, or no gradient flows)"
    if module := re.match(r"([A-Z]\w*)\(", value):
        return f"the module {module[1]} (call it with its input)"
    return article(value) if value.isidentifier() else value


def _short(name: str) -> str:
    """`function` of "package.module.function", `Class.method` of a method."""
    parts = name.split(".")
    return ".".join(parts[-2:] if len(parts) > 1 and parts[-2][:1].isupper() else parts[-1:])
