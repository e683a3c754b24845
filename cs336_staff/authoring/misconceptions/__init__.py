"""The catalogue of known wrong implementations, by id: what the suites and the examination are tried on.

Each file holds the mistakes of one problem. To add one, find the part of `cs336_staff/authoring/parts.py` that is wrong
in it, and put a line into ENTRIES:

    in_attention("attention-cosine", "divides the scores by the lengths of the query and the key", score=cosine)

Where no part expresses it, write the whole function and give that. What an entry says begins with a verb, and is for
staff alone. Then tell `expected_findings.toml` what the examination should find, and let `uv run cs336 staff verify`
say whether both suites catch it.
"""

import re
from collections.abc import Iterable, Mapping

from cs336_kit.engine.assignment import SuiteError
from cs336_staff.authoring import references
from cs336_staff.authoring.misconceptions import (
    attention,
    blockwise,
    cross_attention,
    linear,
    module,
    multihead,
    rope,
    softmax,
)
from cs336_staff.authoring.misconceptions.entry import Misconception

FAMILIES = (softmax, attention, linear, rope, multihead, module, cross_attention, blockwise)

CATALOGUE: dict[str, Misconception] = {entry.id: entry for family in FAMILIES for entry in family.ENTRIES}


def check_catalogue(problems: Iterable[str]) -> None:
    """Raise SuiteError if an entry is not what `Misconception` says.

    Args:
        problems: the ids of all of the assignment.
    """
    seen: set[str] = set()
    for entry in (entry for family in FAMILIES for entry in family.ENTRIES):
        adapters = entry.adapters if isinstance(entry.adapters, Mapping) else {}
        for fine, expected in (
            (re.fullmatch(r"[a-z]+(-\w+)+", str(entry.id)), "an id of its family and some words: softmax-in-place"),
            (entry.id not in seen, "an id that no other has"),
            (
                re.match(r"[a-z].*[^.\s]$", str(entry.what)),
                "what it does, as a verb in lower case and on, without a full stop",
            ),
            (entry.problem in problems, f"a problem of the assignment, got {entry.problem!r}"),
            (adapters, "some adapters"),
            (all(hasattr(references, str(call)) for call in adapters), "adapters of these names: run_softmax, ..."),
            (all(map(callable, adapters.values())), "adapters that can be called"),
            (all(map(callable, entry.parts.values())), "parts that can be called"),
        ):
            if not fine:
                raise SuiteError(f"the misconception {entry.id!r}: expected {expected}")
        seen.add(entry.id)
