"""A pattern of einsum or einops that does not fit its tensors, in plain words."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from torch import Tensor

# What einops says of one tensor and its pattern.
EINOPS = re.compile(
    r"pattern \"(.*?)\"\.\s*Input tensor shape: torch\.Size\(\[(.*?)\]\)\..*?\n\s*(\S[^\n]*)$", re.DOTALL
)


def explain_pattern(error: BaseException) -> list[str]:
    """Say which axes a pattern names that the tensors do not have, in a line each; nothing of any other error."""
    trace = error.__traceback__
    while trace:
        values = trace.tb_frame.f_locals
        if trace.tb_frame.f_code.co_name == "einsum":
            given = values.get("tensors_and_pattern") or values.get("args") or ()  # of einops, of torch
            if patterns := [x for x in given if isinstance(x, str)]:
                shapes = [tuple(x.shape) for x in given if isinstance(x, Tensor)]
                return list(_explain_einsum(patterns[0], shapes, "tensors_and_pattern" in values))
        trace = trace.tb_next
    if not (found := EINOPS.search(str(error))):
        return []
    pattern, sizes, why = found.groups()
    left, shape = pattern.partition("->")[0].strip(), tuple(map(int, sizes.split(",") if sizes else []))
    groups = re.findall(r"\([^)]*\)|\.\.\.|\w+", left)
    if said := _explain_count(left, groups, shape):
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
            yield f"`{name}` stands after the arrow but in no operand"


def _explain_count(operand: str, names: Sequence[str], shape: tuple[int, ...]) -> str:
    count = len(names) - ("..." in names)
    if count == len(shape) or ("..." in names and count < len(shape)):
        return ""
    axes = f"{count} {'axis' if count == 1 else 'axes'}"
    least = "at least " * ("..." in names)
    return f"`{operand}` names {least}{axes}; the tensor has {len(shape)}: {shape}"
