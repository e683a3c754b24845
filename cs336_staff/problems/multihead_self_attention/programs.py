"""Multi-head attention in steps."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from cs336_staff.authoring.room import Build, Part
from cs336_staff.authoring.table import Way, Ways
from cs336_staff.problems.scaled_dot_product_attention.program import RIGHT as OF_ATTENTION


def in_steps(run: Callable[..., Any], right: Ways) -> Build:
    """Builds a program on earlier ones. What it is called with has names: functions are ways to do a step."""

    def program(**named: Any) -> Tensor:
        ways = {name: given for name, given in named.items() if callable(given)}
        return run({**right, **ways}, **{name: named[name] for name in named.keys() - ways})

    def build(earlier: Mapping[str, Part]) -> Part:
        return partial(
            program,
            attend=within_heads(earlier["scaled_dot_product_attention"], right),
            linear=earlier["linear"],
            rotate=lambda x, at, theta, max_seq_len: earlier["rope"](x, at, theta),
        )

    return build


def within_heads(attention: Part, right: Ways) -> Way:
    """Attention, whose steps are done as multi-head attention does them where that is not the right way."""

    def attend(ways: Ways, *arguments: Any) -> Tensor:
        return attention(*arguments, **{step: ways[step] for step in OF_ATTENTION if ways[step] is not right[step]})

    return attend
