"""Have the worker report other missing packages at each call, a hundred with names of 4,000 characters.

plain: refused
report: Your code imports
"""

import itertools
import sys

NUMBERS = itertools.count()

if serve := sys.modules.get("cs336_staff.sandbox.inside.serve"):
    annotated = serve._annotated
    serve._annotated = lambda *arguments: {
        **annotated(*arguments),
        "missing": [f"{next(NUMBERS)}".rjust(4_000, "x") for _ in range(100)],
    }


def run_softmax(in_features, dim):
    return in_features * 0
