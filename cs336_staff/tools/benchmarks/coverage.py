"""Count the misconceptions of softmax and attention that a plain suite catches, and the public one.

uv run python -m cs336_staff.tools.benchmarks.coverage
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from cs336_kit.engine.assignment import find_root
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.release.stages import Stage
from cs336_staff.release.verify import both_suites, submission, verify_misconceptions
from cs336_staff.tools.benchmarks.plain_suite import failed_tests

# The plain suite has no tests of the other problems.
COMPARED = ("softmax", "scaled_dot_product_attention")


def main() -> None:
    table = Table("misconception", "public tests that fail", "plain tests that fail")
    caught = verify_misconceptions(both_suites(find_root(Path.cwd())), Stage())
    compared = [each for each in caught if CATALOGUE[each.id].problem in COMPARED]
    plain = {each.id: failed_tests(submission(each.id)) for each in compared}
    for each in compared:
        table.add_row(each.id, str(sum(each.failed.values())), ", ".join(plain[each.id]))
    console = Console()
    console.print(table)
    console.print(f"{len(compared)} misconceptions in softmax and attention")
    console.print(f"public suite: {sum(bool(each.failed) for each in compared)} caught")
    console.print(f"plain suite: {sum(map(bool, plain.values()))} caught")


if __name__ == "__main__":
    main()
