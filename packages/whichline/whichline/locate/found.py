"""What was found: a change that was proved, and which of several explains most."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whichline.locate.difference import Difference
from whichline.locate.options import Option, Options
from whichline.locate.probe import Expression
from whichline.locate.trace import Trace


@dataclass(frozen=True)
class Found:
    """A replacement that is proved."""

    patch: Options  # the place, and what was put there; after it other places that are wrong for the same reason
    trace: Trace  # a run without it
    difference: Difference  # how the expression differs from that
    explains: tuple[str, ...]  # the failing tests that pass with it, and with what was found before it
    is_clean: bool = True  # whether all that follows is right, too
    shown: Expression | None = None  # the expression to show, if that is another one

    @property
    def place(self) -> Expression:
        return self.shown or next(iter(self.patch))

    @property
    def option(self) -> Option:
        return next(iter(self.patch.values()))


def join_patches(found: Iterable[Found]) -> Options:
    """Join the proved replacements."""
    return {place: option for each in found for place, option in each.patch.items()}


def list_explained(found: Iterable[Found]) -> set[str]:
    """The tests that some places explain together."""
    return {name for each in found for name in each.explains}


def is_plain(found: Sequence[Found]) -> bool:
    return all(each.difference.is_simple for each in found)


def rank(found: Sequence[Found]) -> tuple[int, int, int]:
    """Rank places by the tests that they explain, by how plain it is what is wrong there, and by how few they are."""
    plain = sum(each.difference.is_simple for each in found)
    return len(list_explained(found)), plain, -len(found)


def say_corrected(found: Sequence[Found], shown: int = 2) -> str:
    """Say in which of some places what belongs there was put, of which so many are told."""
    names = {name for each in found for name in each.option.names}
    if len(found) == 1:
        places = 1 if found[0].shown else len(found[0].patch)
        is_one = len(names) == places == 1 and not found[0].option.is_series and not found[0].shown
        several = {1: "With this corrected", 2: "With both places corrected"}
        return f"With {min(names)} here" if is_one else several.get(places, "With all of these corrected")
    more = "".join(f" and line {each.place.line}" for each in found[shown:])
    are_more = any(len(each.patch) > 1 for each in found)
    return "With all of these corrected" if are_more else f"With these two{more} corrected"
