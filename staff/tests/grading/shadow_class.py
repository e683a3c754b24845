"""The class of staff/tests/shadow_class/: trees as students hand them in, and the grade that each deserves."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from staff.tests import ROOT
from whichline.engine.assignment import load_problems

FOLDER = ROOT / "staff" / "tests" / "shadow_class"
CORE = {id: problem for id, problem in load_problems(ROOT).items() if not problem.bonus}
MAXIMUM = sum(problem.points for problem in CORE.values())
# The solution of the bonus problems.
BONUS = [Path(file).name for problem in load_problems(ROOT).values() if problem.bonus for file in problem.files]
LEFT_OUT = shutil.ignore_patterns("__pycache__", "torch_multihead.py", *BONUS)
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Tree:
    """What a section of a page says of a tree."""

    deserved: dict[str, str]  # "full", "part" or "none" for each problem that the tree deserves anything for
    points: float  # that it gets
    python: str  # the oldest that can read it
    packed_in: str | None  # the folder that was handed in with everything in it, if one was
    is_whole: bool  # whether it has no file but those of its blocks
    blocks: list[tuple[str, str]]  # paths of files, and what comes below what they have


def _read(section: str, beginning: str) -> Tree:
    text = BLOCK.sub("", section)

    def read(pattern: str) -> str | None:
        match = re.search(pattern, text, re.M)
        return match and match[1]

    return Tree(
        deserved=dict.fromkeys(CORE, "full") | dict(re.findall(r"(\w+): (full|part|none)", text)),
        points=float(read(r"^([\d.]+) points") or MAXIMUM),
        python=read(r"^Needs Python ([\d.]+)\.$") or "3.11",
        packed_in=read(r"^Packed in `(\w+)`\.$"),
        is_whole="Nothing else is handed in." in beginning,
        blocks=BLOCK.findall(beginning) + BLOCK.findall(section),
    )


def _read_class() -> dict[str, Tree]:
    trees = {}
    for page in FOLDER.glob("*.md"):
        beginning, *sections = re.split(r"^### ", page.read_text(encoding="utf-8"), flags=re.M)
        trees |= {section.split("\n", 1)[0]: _read(section, beginning) for section in sections}
    return dict(sorted(trees.items()))


CLASS = _read_class()


def write_tree(name: str, folder: Path) -> Path:
    """Write the tree of this name below `folder`, and return the folder that was handed in."""
    handed_in, tree = folder / name, CLASS[name]
    root = handed_in / (tree.packed_in or "")
    if not tree.is_whole:
        shutil.copytree(ROOT / "cs336_basics", root / "cs336_basics", ignore=LEFT_OUT)
        shutil.copy(ROOT / "adapters.py", root)
    for path, source in tree.blocks:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as end:
            end.write(f"\n\n{source}" if end.tell() else source)
    return handed_in
