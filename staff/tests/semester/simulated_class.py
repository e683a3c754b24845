"""A class whose grades are known before anything is graded, by what was handed in.

They come from the points of the assignment, from what staff/tests/shadow_class/ says, and from `FAULTS`.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from staff.tests.attacks.attack import write_attack
from staff.tests.grading.shadow_class import write_tree
from staff.tools.student import FUNCTIONAL, ROOT
from whichline.engine.assignment import load_problems
from whichline.engine.problem_folder import list_adapters

# Problems beyond what is required are in it.
EVERYTHING = ROOT / "staff/right_programs/row_loops_gathered_keys.py"

# This course does without most problems, so that each submission takes little time.
KEPT = ("softmax", "scaled_dot_product_attention", "linear", "attention_module")

# Points of softmax and of what is required, and the problems that are in EVERYTHING.
PROBLEMS = {id: problem for id, problem in load_problems(ROOT).items() if id in KEPT}
SOFTMAX = PROBLEMS["softmax"].points
REQUIRED = sum(problem.points for problem in PROBLEMS.values() if not problem.bonus)
WRITTEN = [id for id in PROBLEMS if all(f"def {name}(" in EVERYTHING.read_text() for name in list_adapters(id))]

# Mistakes as edits of the solution, with the points that they cost in all, and of those in softmax.
SOLVED = {"adapters.py"}.union(*(problem.files for problem in load_problems(ROOT).values() if not problem.bonus))
FAULTS = {
    "scores not divided by √d_k": (FUNCTIONAL, " / math.sqrt(Q.shape[-1])", "", 4.49, 0.0),
    "ε = 1e-9 in softmax": (FUNCTIONAL, "total == 0.0, 1.0)", "total == 0.0, 1.0) + 1e-9", 0.08, 0.08),
}

MOST = 0.08  # that softmax earns which computes nothing: one that is 1 everywhere is right where there is one number

IN_TIME, LATE = "2026-09-30 12:00:00.0 Z", "2026-10-03 12:00:00.0 Z"  # as Gradescope writes it
EXTENDED, GROUP, MAILED = 2, 5, 6  # numbers of students; the group is late


class Upload(NamedTuple):
    """What is handed in, and what it should get."""

    what: str  # it is, for people
    path: Path  # of a folder or a file
    points: float  # it should get
    softmax: float = SOFTMAX  # how many of these are for softmax
    hostile: bool = False  # whether `points` are the most that it may get


AGAIN = Upload("handed in again", EVERYTHING, sum(PROBLEMS[id].points for id in WRITTEN))


@dataclass(frozen=True)
class Student:
    """One of the class: a number from 1, the work, and the part of the points that lateness costs."""

    number: int
    work: Upload
    penalty: float = 0.0

    @property
    def keys(self) -> list[str]:
        """The student, and a partner in the group, as grades.csv knows them."""
        first = f"student{self.number}" if self.number == MAILED else str(1000 + self.number)
        return [first, str(1900 + self.number)] if self.number == GROUP else [first]

    def hand_in(self, week: Path, at: str = IN_TIME) -> None:
        """Put the work where it lies once staff have downloaded it, under the name that it has there."""
        key, is_folder = self.keys[0], self.work.path.is_dir()
        if self.number == MAILED:
            shutil.copytree(self.work.path, week / "mail" / key)
        elif self.number % 3 == 2:  # Gradescope has a folder for each, and one file that says of all who and when
            folder = week / "gradescope" / f"submission_{key}"
            folder.mkdir(parents=True)
            if is_folder:
                shutil.copytree(self.work.path, folder, dirs_exist_ok=True)
            else:
                shutil.copy(self.work.path, folder / "adapters.py")
            with (week / "gradescope" / "submission_metadata.yml").open("a") as metadata:
                metadata.write(f"{folder.name}:\n  :created_at: {at}\n  :submitters:\n")
                metadata.writelines(f"  - :sid: '{key}'\n    :name: student {key}\n" for key in self.keys)
        else:
            (week / "canvas").mkdir(parents=True, exist_ok=True)
            name = str(week / "canvas" / f"student{self.number}_{key}_{5000 + self.number}_attention")
            if is_folder:
                shutil.make_archive(name, "zip", self.work.path)
            else:
                shutil.copy(self.work.path, name + self.work.path.suffix)


def make_class(start: Path, folder: Path) -> list[Student]:
    """Make up six students of the tree that they received, and a folder for what they write."""
    folder.mkdir()

    def faulty(what: str) -> Upload:
        (file, right, wrong, lost, in_softmax), path = FAULTS[what], folder / what.replace("/", " ")
        shutil.copytree(start / "cs336_basics", path / "cs336_basics")  # the bonus problems stay as they are
        for name in SOLVED:
            shutil.copy(ROOT / name, path / name)
        source = (path / file).read_text()
        assert right in source, f"{file} has no {right!r}"
        (path / file).write_text(source.replace(right, wrong))
        return Upload(what, path, REQUIRED - lost, SOFTMAX - in_softmax)

    attack = write_attack("frame_walk", folder)
    works = [
        Upload("nothing written", start, 0, 0),
        Upload("only softmax and the linear layer", write_tree("38_only_softmax_and_linear", folder), 3),
        Upload(f"hostile: {attack.name}", attack, MOST, MOST, hostile=True),
        faulty("ε = 1e-9 in softmax"),
        faulty("scores not divided by √d_k"),
        Upload("flat files", write_tree("01_flat_files", folder), REQUIRED),
    ]
    return [Student(number, work) for number, work in enumerate(works, start=1)]
