"""Write into the pages how many attacks there are, and what becomes of them in a plain run.

`uv run python -m staff.tools.count_attacks` writes the numbers; with `--check` it fails when one is out of date.
"""

import re
import sys
from collections import Counter

from staff.tests.attacks.attack import HEAD, list_attacks
from staff.tests.attacks.catalogue import feeder
from staff.tests.attacks.test_defences import WITHOUT
from staff.tools.student import ROOT

SENTENCES = {
    "README.md": ("The repository holds {all} attempts to cheat: {forged} get full marks",),
    "packages/grader/whichline_grader/docs/security.md": (
        "holds {all} small submissions",
        "{forged} get full marks for a wrong answer, {reached} reach what they were after, {flooded} flood, {hung} "
        "hang, {killed} end the grading process, and {refused} gain nothing",
        "For {shown} of those `test_defences.py` shows",
        "{feeder} (`feeder`) aim at questions that come one at a time",
    ),
}


def count_attacks() -> dict[str, int]:
    """Count the attacks by what becomes of them; some of the refused ones are shown without the defence."""
    attacks = list_attacks()
    counts = Counter(attack.plain for attack in attacks)
    refused = {attack.id for attack in attacks if attack.plain == "refused"}
    of_feeder = refused & {head[0] for head in HEAD.findall(feeder.ATTACKS)}
    shown = refused - of_feeder - WITHOUT.keys()
    return {**counts, "all": len(attacks), "feeder": len(of_feeder), "shown": len(shown)}


def fill(text: str, sentence: str, counts: dict[str, int]) -> str:
    """Put the numbers into a sentence of a page, whose lines may break anywhere."""
    words = re.split(r"\{(\w+)\}", sentence)
    literals = (r"\s+".join(map(re.escape, literal.split(" "))) for literal in words[::2])
    found = re.search(r"\d+".join(f"({literal})" for literal in literals), text)
    if not found:
        raise SystemExit(f"no page says: {sentence}")
    numbers = (str(counts[name]) for name in words[1::2])
    filled = "".join(literal + number for literal, number in zip(found.groups(), (*numbers, ""), strict=True))
    return text[: found.start()] + filled + text[found.end() :]


def main() -> None:
    """Write the pages, or compare them."""
    counts = count_attacks()
    for name, sentences in SENTENCES.items():
        old = text = (ROOT / name).read_text(encoding="utf-8")
        for sentence in sentences:
            text = fill(text, sentence, counts)
        if text != old and "--check" in sys.argv:
            raise SystemExit(f"{name} has other numbers: run `uv run python -m staff.tools.count_attacks`")
        (ROOT / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
