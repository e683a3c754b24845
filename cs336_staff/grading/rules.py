"""Evidence that the graded calls ran from torch what students must write themselves.

All of it was seen by the watch beside the submission (`cs336_kit/rules/watch.py`). Nothing is read in the source: what
is only written there may never run. Best effort, as whatever runs in the same process as what it watches.
"""

from collections.abc import Collection, Iterator, Mapping

from cs336_kit.rules.forbidden import FORBIDDEN
from cs336_kit.rules.price import charged
from cs336_kit.rules.watch import Use

MAX_SHOWN = 3  # lines of a problem


def judge(public: Mapping[str, Collection[Use]], hidden: Mapping[str, Collection[Use]]) -> dict[str, tuple[str, ...]]:
    """The lines that speak against each problem that pays for a forbidden function.

    A hostile worker chooses the lines that it reports, and could spell hidden inputs with them. So those that are shown
    are what public tests ran, before it had a hidden input; if only hidden ones ran any, it is one function.

    Args:
        public: what the public tests of each problem ran, in the order of the assignment.
        hidden: the same of the hidden tests.
    """
    public = {problem: set(_checked(uses)) for problem, uses in public.items()}
    seen = {problem: uses.union(_checked(hidden[problem])) for problem, uses in public.items()}
    shown = charged(public)
    return {
        problem: tuple(map(str, shown.get(problem, ())[:MAX_SHOWN])) or (f"{uses[0].function}, in a hidden test",)
        for problem, uses in charged(seen).items()
    }


def _checked(uses: Collection[Use]) -> Iterator[Use]:
    """Those of functions that are forbidden; without a place where the submission has no such line."""
    for use in uses:
        if use.function in FORBIDDEN:
            yield use if use.source else Use("", 0, use.function)
