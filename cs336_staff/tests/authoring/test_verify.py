"""What `cs336 staff verify` says of misconceptions; that they are caught and named is tested beside the catalogue."""

from rich.console import Console

from cs336_staff.authoring.verify import Finding, coverage_table

TESTS = ("test_softmax", "test_linear")


def test_the_table_has_a_row_for_each_misconception_and_a_column_for_each_test():
    findings = [
        Finding("softmax-log", {"test_softmax": 13}, {"softmax-log"}, True, ""),
        Finding("linear-bias", {}, set(), False, "is not caught"),
    ]
    console = Console(width=80)
    with console.capture() as printed:
        console.print(coverage_table(findings, TESTS))
    header, *rows = [line.split() for line in printed.get().splitlines() if line.strip()]
    assert header == ["misconception", "1", "2", "hidden", "named"]
    assert rows == [
        ["softmax-log", "13", "·", "caught", "yes"],
        ["linear-bias", "·", "·", "NO", "is", "not", "caught"],
    ]
