"""The labelled sentences that `cs336 train` takes when it is given no others.

    uv run python -m cs336_staff.tools.sentences

writes them. Each praises or blames one thing, with one adjective, which may be negated. The word "not" and an adjective
mean nothing for the label alone: it takes both, and a negation that belongs to another verb counts for nothing. Each
half of the sentences holds every adjective as often with a negation as without. The templates of the held-out
sentences occur in no training sentence; the words that fill them do.
"""

import csv
import random
from collections.abc import Iterator
from pathlib import Path

from cs336_kit.engine.assignment import find_root

PATH = find_root(Path(__file__).parent) / "cs336_kit" / "lab" / "sentences.tsv"

ADJECTIVES = {
    "positive": ("good", "great", "lovely", "wonderful", "pleasant", "brilliant", "charming", "splendid"),
    "negative": ("bad", "awful", "dull", "terrible", "dreadful", "boring", "horrible", "miserable"),
}
NEGATIONS = ("not", "never", "hardly")
THINGS = ("soup", "bread", "coffee", "room", "hotel", "garden", "film", "book", "concert", "lecture")

TEMPLATES = {
    "train": (
        "the {thing} was {verdict}",
        "i thought the {thing} was {verdict}",
        "everyone said that the {thing} was {verdict}",
        "the {thing} we had yesterday was {verdict}",
        "her {thing} is {verdict} these days",
        "{verdict} is what i call this {thing}",
        "a {thing} that is {verdict} is what we got",
        "we did not wait long and the {thing} was {verdict}",
        "i had never been there before but the {thing} is {verdict}",
        "there was hardly anyone and the {thing} was {verdict}",
        "the {thing} was {verdict} but we did not mind",
        "the {thing} is {verdict} and i have never paid for it",
        "it is not far and the {thing} was {verdict}",
        "never mind the rain the {thing} was {verdict}",
        "you can hardly miss it and the {thing} is {verdict}",
        "the {thing} is {verdict} which is not what i expected",
        "the {thing} was {verdict} so i will never forget it",
        "the {thing} is {verdict} and hardly anyone knows it",
    ),
    "held-out": (
        "my sister told me the {thing} was {verdict}",
        "this {thing} is {verdict} in my opinion",
        "the {thing} that they showed us was {verdict}",
        "once again their {thing} is {verdict}",
        "she could not come but the {thing} was {verdict}",
        "we never complain and this {thing} is {verdict}",
        "with hardly a word he said the {thing} was {verdict}",
        "the {thing} was {verdict} although he had not been there",
    ),
}
COPIES = {"train": 4, "held-out": 1}


def sentences() -> Iterator[tuple[str, str, str]]:
    """Text, label and split of each sentence, always the same."""
    draw = random.Random(0)  # noqa: S311 (nobody is to be kept from guessing)
    for split, templates in TEMPLATES.items():
        for template in templates * COPIES[split]:
            for quality, adjectives in ADJECTIVES.items():
                opposite = next(other for other in ADJECTIVES if other != quality)
                for adjective in draw.sample(adjectives, 4):
                    very = draw.choice(("", "very ", "really "))
                    for label, negation in ((opposite, f"{draw.choice(NEGATIONS)} "), (quality, "")):
                        verdict = f"{negation}{very}{adjective}"
                        yield template.format(thing=draw.choice(THINGS), verdict=verdict), label, split


def main() -> None:
    with PATH.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([("text", "label", "split"), *sentences()])


if __name__ == "__main__":
    main()
