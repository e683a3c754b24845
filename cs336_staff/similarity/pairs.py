"""The similarity of two submissions, by the fingerprints that they share and that few others have.

The programs of this assignment are short, and two honest ones are alike. So a shared fingerprint counts by its rarity,
as the inverse document frequency of information retrieval: 1 if these two alone have it, and 0 if everybody has.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cs336_staff.similarity.fingerprints import Fingerprint

LEAST = 40  # fingerprints: two programs of a few lines each are not alike because they share one of them


@dataclass(frozen=True)
class Work:
    """The files that were handed in.

    Args:
        name: for people.
        students: keys of those who handed it in.
        sources: by name of the file.
        fingerprints: of each file that could be read, without those of the given code.
    """

    name: str
    students: frozenset[str]
    sources: Mapping[str, bytes]
    fingerprints: Mapping[str, Collection[Fingerprint]]

    @property
    def hashes(self) -> set[int]:
        return {each.hash for prints in self.fingerprints.values() for each in prints}


class Pair(NamedTuple):
    """Two submissions of different students.

    Args:
        similarity: from 0 to 1: the part of the shorter one that the two share, each fingerprint by its rarity.
        shared: the rarity of each fingerprint that both have.
    """

    similarity: float
    one: Work
    other: Work
    shared: Mapping[int, float]


def find_pairs(works: Sequence[Work], most: int) -> tuple[list[Pair], float]:
    """Find the pairs that share something that not everybody has, the most alike first.

    Args:
        works: what was handed in; works of the same student are not a pair.
        most: how many pairs.

    Returns:
        The pairs, and the median of how much each submission resembles the one that it resembles most.
    """
    hashes = [work.hashes for work in works]
    owners: defaultdict[int, set[frozenset[str]]] = defaultdict(set)
    for work, found in zip(works, hashes, strict=True):
        for each in found:
            owners[each].add(work.students)
    students = len({work.students for work in works})
    rarity = {each: _rarity(len(who), students) for each, who in owners.items() if len(who) > 1}
    column = {each: number for number, each in enumerate(rarity)}

    has = np.zeros((len(works), len(column)), np.float32)
    for row, found in zip(has, hashes, strict=True):
        row[[column[each] for each in found if each in column]] = 1
    lengths = np.array([max(len(found), LEAST) for found in hashes], np.float32)
    similarity = (has * np.array(list(rarity.values()), np.float32)) @ has.T / np.minimum(lengths, lengths[:, None])
    for number, work in enumerate(works):
        similarity[number, [not work.students.isdisjoint(other.students) for other in works]] = 0

    pairs: list[Pair] = []
    for place in np.argsort(np.triu(similarity).ravel())[::-1][:most]:
        one, other = divmod(int(place), len(works))
        if similarity[one, other] > 0:
            shared = {each: rarity[each] for each in hashes[one] & hashes[other]}
            pairs.append(Pair(float(similarity[one, other]), works[one], works[other], shared))
    return pairs, float(np.median(similarity.max(1)))


def _rarity(owners: int, students: int) -> float:
    """Compute how much a fingerprint counts: 1 if two students have it, nearly 0 if all have."""
    return math.log((students + 1) / owners) / math.log((students + 1) / 2)
