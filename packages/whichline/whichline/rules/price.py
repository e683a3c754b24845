"""Decide what each problem pays for works that are not the student's own."""

from collections.abc import Iterable, Mapping


def charge(ran: Mapping[str, Iterable[str]], points: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The points that each problem pays, for each work.

    The work of a problem costs the points of that problem, once: they are taken from the problems that run it, the
    first one first, from each as many as are left. What does no problem's work costs the first that runs it all points.

    Args:
        ran: the works of other hands that the tests of each problem have run, in the order of the assignment
            (`work_of` in `forbidden.py` names them).
        points: that each problem is worth.
    """
    left = dict(points)
    owed: dict[str, float] = {}
    paid: dict[str, dict[str, float]] = {}
    for problem, works in ran.items():
        for work in sorted(works):
            owes = owed.get(work, points.get(work, left[problem]))
            pays = min(owes, left[problem])
            owed[work] = owes - pays if work in points else 0.0
            left[problem] -= pays
            if pays:
                paid.setdefault(problem, {})[work] = pays
    return paid
