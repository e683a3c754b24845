"""Deduct points for forbidden functions."""

from collections.abc import Iterable, Mapping


def compute_deductions(ran: Mapping[str, Iterable[str]], points: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Compute the points that each problem loses, for each work.

    The work of a problem costs that problem's points, once. They are deducted from the problems that ran it, in the
    order of the assignment, from each at most what it has left. Any other forbidden function costs the first problem
    that ran it all its points.

    In `ran` are, for each problem in the order of the assignment, the works that forbidden functions did in its tests
    (`name_work` in `forbidden.py` names them); `points` says what each problem is worth.
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
