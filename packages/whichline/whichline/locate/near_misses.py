"""Replacements with which a test still fails, but more of what it computes is right: each may be the first of two."""

from collections.abc import Sequence
from typing import NamedTuple

from whichline.locate.difference import Difference, compare
from whichline.locate.options import Options
from whichline.locate.probe import Expression
from whichline.locate.trace import Trace

MAX_NEAR_MISSES = 6  # tried as the first of two replacements
LEAD = 10  # a replacement that makes so many checkpoints right is followed at once


class NearMiss(NamedTuple):
    """A replacement with which the test still fails."""

    newly_right: int  # how many checkpoints are right that were not
    patch: Options
    trace: Trace  # a run without it

    @property
    def place(self) -> Expression:
        return next(iter(self.patch))

    @property
    def difference(self) -> Difference:
        return compare(self.trace, self.patch)


def has_lead(near_misses: Sequence[NearMiss]) -> bool:
    return any(each.newly_right >= LEAD for each in near_misses)


def rank_near_misses(near_misses: Sequence[NearMiss]) -> list[NearMiss]:
    """List the near misses to try first: those that make the most checkpoints right, else the simplest ones."""
    most = max((each.newly_right for each in near_misses), default=0)
    if most:
        ranked = [each for each in near_misses if 2 * each.newly_right >= most]
    else:
        ranked = [each for each in near_misses if not each.trace.is_number(each.place)]

    def rank(each: NearMiss) -> tuple[int, bool, bool]:
        has_other_axes = bool(most) and each.patch[each.place].axes is None
        return -each.newly_right, has_other_axes, not each.difference.is_simple

    return sorted(ranked, key=rank)[:MAX_NEAR_MISSES]
