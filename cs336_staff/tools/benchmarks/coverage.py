"""Every misconception of softmax and attention under a plain suite, beside what the public one says of it.

uv run python -m cs336_staff.tools.benchmarks.coverage
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from cs336_kit.engine.assignment import find_root
from cs336_staff.authoring.misconceptions import CATALOGUE
from cs336_staff.authoring.verify import submission, verify_misconceptions
from cs336_staff.tools.benchmarks.plain_suite import failed_tests

# The plain suite has no tests of the other problems.
COMPARED = ("softmax", "scaled_dot_product_attention")


def main() -> None:
    table = Table("misconception", "public tests that fail", "named", "plain tests that fail")
    compared = [each for each in verify_misconceptions(find_root(Path.cwd())) if CATALOGUE[each.id].problem in COMPARED]
    plain = {finding.id: failed_tests(submission(finding.id)) for finding in compared}
    for finding in compared:
        failed, named = str(sum(finding.failed.values())), ", ".join(sorted(finding.named))
        table.add_row(finding.id, failed, named, ", ".join(plain[finding.id]))
    console = Console()
    console.print(table)
    caught, named = sum(bool(each.failed) for each in compared), sum(each.named == {each.id} for each in compared)
    console.print(f"{len(compared)} misconceptions in softmax and attention")
    console.print(f"public suite: {caught} caught, {named} named by their own name alone")
    console.print(f"plain suite: {sum(map(bool, plain.values()))} caught")


if __name__ == "__main__":
    main()
