"""The table of tolerances.md: how far right implementations lie from the float64 reference.

`uv run python -m cs336_staff.tools.tolerances` prints it.
"""

from collections import defaultdict
from pathlib import Path

from cs336_kit.engine.assignment import find_root
from cs336_kit.engine.case import Case, load_case, load_metadata
from cs336_staff.authoring.cases.public import PUBLIC
from cs336_staff.authoring.right_styles import CORRECT
from cs336_staff.authoring.stored_cases import spread

FIXTURES = find_root(Path(__file__).parent) / "fixtures"


def main() -> None:
    rows: dict[tuple[str, str, str], list[tuple[dict[str, float], float]]] = defaultdict(list)
    for spec in PUBLIC:
        case = load_case(FIXTURES, spec.name)
        call = load_metadata(FIXTURES, spec.name)["call"]
        for what, errors in spread(call, case.inputs, case.expected, case.cotangent).items():
            kind = "gradient" if what.startswith("gradient") else what
            rows[call.removeprefix("run_"), _dtype(case), kind].append((errors, case.tolerance[what]))

    print(f"| adapter | dtype | what | cases | {' | '.join(CORRECT)} | tolerances |")
    print(f"| --- | --- | --- | ---: | {'---: | ' * len(CORRECT)}---: |")
    for (call, dtype, kind), found in sorted(rows.items()):
        spreads = " | ".join(f"{max(errors[style] for errors, _ in found):.1e}" for style in CORRECT)
        allowed = [tolerance for _, tolerance in found]
        print(f"| {call} | {dtype} | {kind} | {len(found)} | {spreads} | {min(allowed):.0e} to {max(allowed):.0e} |")


def _dtype(case: Case) -> str:
    return str(case.dtype).removeprefix("torch.")


if __name__ == "__main__":
    main()
