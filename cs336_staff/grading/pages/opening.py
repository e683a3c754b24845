"""The three sentences that a class report opens with: what the class can do, what it cannot, and what to teach next."""

from collections import Counter
from collections.abc import Iterable, Sequence

from cs336_kit.engine.assignment import Problem
from cs336_staff.grading.pages.entry import Entry, Told

MOST = 0.75  # of the submissions, for the class to be able to do something
LONGEST = 240  # of a quotation


def opening(entries: Sequence[Entry], problems: Iterable[Problem]) -> tuple[str, str, str]:
    """Say it of the submissions that were run, in the problems that are not bonus."""
    ran = [entry for entry in entries if not entry.refused]
    core = [problem for problem in problems if not problem.bonus]
    if not ran:
        nothing = "None of the submissions was run" if len(entries) > 1 else "The only submission was not run"
        return (
            f"{nothing}, so nothing is known yet about what the class can do.",
            "What it cannot do is not known either.",
            "Find out why before you teach anything: the reasons are below.",
        )
    solved = {problem.id: sum(entry.solves(problem) for entry in ran) for problem in core}
    return _can(ran, core, solved), _cannot(ran, core, solved), _next(ran, core, solved)


def _can(ran: Sequence[Entry], core: Sequence[Problem], solved: dict[str, int]) -> str:
    n = len(ran)
    if all(solved[problem.id] == n for problem in core):
        return f"{_all(n)} every test of every problem."
    able = [problem for problem in core if solved[problem.id] >= MOST * n]
    if able and n == 1:
        return f"The only submission passes every test of {_and(able)}."
    if able:
        least = min(solved[problem.id] for problem in able)
        whole = "The whole class" if least == n else "Most of the class"
        at_least = "at least " * (len(able) > 1 and least < n)
        each = "each" if len(able) > 1 else "it"
        return f"{whole} can write {_and(able)}: {at_least}{_of(least, n)} pass every test of {each}."
    best = max(core, key=lambda problem: solved[problem.id])
    if not solved[best.id]:
        who = "No submission passes" if n > 1 else "The only submission does not pass"
        return f"{who} every test of any problem yet."
    passes = "pass" if solved[best.id] > 1 else "passes"
    return (
        f"No problem is solved by three quarters of the class yet; {_title(best)} comes closest, where "
        f"{_of(solved[best.id], n)} {passes} every test."
    )


def _cannot(ran: Sequence[Entry], core: Sequence[Problem], solved: dict[str, int]) -> str:
    n = len(ran)
    failing = [problem for problem in core if solved[problem.id] < n]
    if not failing:
        return "Nothing is left that anyone fails at." if n > 1 else "Nothing is left that it fails at."
    lost = {
        problem.id: sum(problem.points - entry.points(problem) for entry in ran) / problem.points for problem in failing
    }
    worst = min(failing, key=lambda problem: (solved[problem.id], -lost[problem.id]))
    without = n - solved[worst.id]
    unwritten = sum(not entry.wrote(worst) for entry in ran)
    if n == 1:
        return f"It has not written {_title(worst)}." if unwritten else f"It fails tests of {_title(worst)}."
    which = {0: "", without: ", since they have not written it" if without > 1 else ", which has not written it"}
    some = f", and {unwritten} of them {'have' if unwritten > 1 else 'has'} not written it"
    unwritten_too = which.get(unwritten, some)
    if without == n:
        return f"Nobody can write {_title(worst)} yet: {_of(without, n)} fail tests of it{unwritten_too}."
    fail = f"{_of(without, n)} {'fail' if without > 1 else 'fails'} tests of it{unwritten_too}"
    if without > (1 - MOST) * n:
        return f"What many cannot write yet is {_title(worst)}: {fail}."
    return f"The hardest problem is {_title(worst)}: {fail}."


def _next(ran: Sequence[Entry], core: Sequence[Problem], solved: dict[str, int]) -> str:
    n = len(ran)
    worst = min(core, key=lambda problem: solved[problem.id])
    without = n - solved[worst.id]
    if not without:
        return "Nothing needs teaching again: go on to what comes next."
    graded = {problem.id for problem in core}
    sections, told = Counter[str](), dict[str, list[Told]]()
    for entry in ran:
        mistakes = [each for each in entry.told if each.problem in graded and each.section and each.runs]
        sections.update({each.section for each in mistakes})
        for each in mistakes:
            told.setdefault(each.section, []).append(each)
    unwritten = {problem.id: sum(not entry.wrote(problem) for entry in ran) for problem in core}
    least = max(core, key=lambda problem: unwritten[problem.id])
    ((section, have),) = sections.most_common(1) or [("", 0)]
    if unwritten[least.id] > have:
        many = unwritten[least.id]
        return f"Teach {_title(least)} next: {_of(many, n)} {'have' if many > 1 else 'has'} not written it."
    if not have:
        return f"Teach {_title(worst)} next; the examinations found no mistake that explains why its tests fail."
    (commonest, times), *_ = Counter(each.id for each in told[section]).most_common(1)
    example = next(each for each in told[section] if each.id == commonest)
    number, _, title = section.partition(" ")
    quoted = example.short if len(example.short) <= LONGEST else example.short[:LONGEST] + "…"
    teach = f"Teach section {number} of the handout next, “{title}”:"
    if n == 1 or have == 1:
        return f"{teach} one submission has a mistake in it: “{quoted}”"
    how_often = f"in {times} of them" if times > 1 else "for example"
    return f"{teach} {_of(have, n)} have a mistake in it, {how_often} “{quoted}”"


def _all(n: int) -> str:
    return "The only submission passes" if n == 1 else f"All {n} submissions pass"


def _of(k: int, n: int) -> str:
    return f"all {n} submissions" if k == n else f"{k} of {n} submissions"


def _and(problems: Sequence[Problem]) -> str:
    *others, last = map(_title, problems)
    return f"{', '.join(others)} and {last}" if others else last


def _title(problem: Problem) -> str:
    """Its title inside a sentence: "softmax", but "RoPE"."""
    first, space, rest = problem.title.partition(" ")
    return (first.lower() if first[1:].islower() else first) + space + rest
