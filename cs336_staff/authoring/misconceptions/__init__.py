"""The catalogue of known wrong implementations, by id: what the suites and the examination are tried on.

Each file holds the mistakes of one problem. To add one, find the part of `cs336_staff/authoring/parts.py` that is wrong
in it, and put a line into ENTRIES:

    in_attention("attention-cosine", "divides the scores by the lengths of the query and the key", score=cosine)

Where no part expresses it, write the whole function and give that. What an entry says begins with a verb, and is for
staff alone. Then tell `expected_findings.toml` what the examination should find, and let `uv run cs336 staff verify`
say whether both suites catch it.
"""

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
