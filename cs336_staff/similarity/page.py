"""A page that shows pairs of submissions side by side; what they share is marked."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader

from cs336_staff.sandbox.printable import printable
from cs336_staff.similarity.pairs import Pair, Work

RARE = 0.5  # rarity from which a mark is dark
AROUND = 3  # lines that are shown before and after what is shared
LONGEST = 160  # characters of a line
LINE_ENDS = re.compile(r"\r\n|\r|\n")  # as Python counts lines


class Line(NamedTuple):
    """One line of a source.

    Args:
        number: counted from 1; 0 stands for lines that are left out.
        text: what is shown of it.
        mark: "rare", "common" or nothing.
        mate: where the other submission has what begins here, if the mark begins.
    """

    number: int
    text: str = ""
    mark: str = ""
    mate: str = ""


def page(pairs: Sequence[Pair], **facts: Any) -> str:
    """Write the page, in HTML without scripts; `facts` are what the template says of the class."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    shown = [(pair, [_files(pair, pair.one, pair.other), _files(pair, pair.other, pair.one)]) for pair in pairs]
    return environment.get_template("similar.html").render(pairs=shown, printable=printable, **facts)


def _files(pair: Pair, work: Work, other: Work) -> dict[str, list[Line]]:
    """The lines of each file of `work` in which there is something shared."""
    mates = {
        each.hash: f"→ {PurePosixPath(file).name}:{each.first}"
        for file, prints in other.fingerprints.items()
        for each in reversed([*prints])
    }
    files: dict[str, list[Line]] = {}
    for file, prints in work.fingerprints.items():
        rarity: dict[int, float] = {}
        begins: dict[int, str] = {}
        for each in prints:
            if each.hash in pair.shared:
                begins.setdefault(each.first, mates[each.hash])
                for line in range(each.first, each.last + 1):
                    rarity[line] = max(rarity.get(line, 0.0), pair.shared[each.hash])
        if rarity:
            files[file] = list(_lines(work.sources[file], rarity, begins))
    return files


def _lines(source: bytes, rarity: Mapping[int, float], begins: Mapping[int, str]) -> Iterator[Line]:
    near = {line + step for line in rarity for step in range(-AROUND, AROUND + 1)}
    before = 0
    for number, text in enumerate(LINE_ENDS.split(source.decode(errors="replace")), start=1):
        if number in near:
            if before != number - 1:
                yield Line(0)
            before = number
            mark = "" if number not in rarity else "rare" if rarity[number] >= RARE else "common"
            mate = begins.get(number, "") if number - 1 not in rarity else ""
            yield Line(number, printable(text[:LONGEST]), mark, mate)
