"""Every misconception of the catalogue under the public suite and under a plain one: what each catches and names.

uv run python -m cs336_staff.benchmarks.coverage
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from cs336_kit.assignment import find_root
from cs336_staff.benchmarks.plain_suite import failed_tests
from cs336_staff.correct import CORRECT
from cs336_staff.misconceptions import CATALOGUE
from cs336_staff.rehearsal import rehearse

# The plain suite has no tests of the other problems.
COMPARED = ("softmax", "scaled_dot_product_attention")


def main() -> None:
    root = find_root(Path.cwd())
    table = Table("misconception", "tests that fail", "named", "also named", "plain suite")
    caught = named = alone = plain = 0
    for entry in CATALOGUE.values():
        adapters = {**CORRECT["einsum"], **entry.adapters}
        rehearsal = rehearse(root, adapters)
        others = rehearsal.named - {entry.id}
        failed = failed_tests(adapters)
        caught += bool(rehearsal.failures)
        named += entry.id in rehearsal.named
        alone += rehearsal.named == {entry.id}
        plain += bool(failed)
        name = "yes" if entry.id in rehearsal.named else "NO"
        table.add_row(entry.id, str(len(rehearsal.failures)), name, ", ".join(sorted(others)), ", ".join(failed))
    compared = [entry for entry in CATALOGUE.values() if entry.problem in COMPARED]
    console = Console()
    console.print(table)
    console.print(
        f"public suite: {caught} of {len(CATALOGUE)} caught, {named} named, {alone} of them with no other name"
    )
    console.print(f"plain suite: {plain} caught, of the {len(compared)} in softmax and attention")


if __name__ == "__main__":
    main()
