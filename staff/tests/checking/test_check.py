"""`cs336 check` shows the board whatever student code does."""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from staff.tools.student import FUNCTIONAL, LINEAR, ROOT, ROPE, Student
from staff.tools.terminal import Terminal
from whichline.checking.board import begin_at, render, score
from whichline.checking.runner import Run
from whichline.checking.short_failures import shorten_findings
from whichline.cli import main as cs336
from whichline.engine.assignment import Problem, find_problem, load_problems
from whichline.engine.finding import Finding
from whichline.engine.result import Check, Outcome, Result

pytestmark = pytest.mark.slow

SOFTMAX = "softmax"
EXITS = "Do your files end it\nwhen they are imported, for example with os._exit?\n"
SOUGHT = "any('explain.py' in frame.filename for frame in __import__('traceback').extract_stack())"
SOONER = """
from whichline.checking import runner, watchdog
from whichline.cli import main
runner.LONG = watchdog.LONG = 2.0
main()
"""


def rows(output: str) -> dict[str, list[str]]:
    """The cells of each row of the board, by problem."""
    cells = [re.split(r"\s{2,}", line.strip()) for line in output.splitlines() if re.search(r"/\d+ *$", line)]
    return {name: rest for name, *rest in cells}


def test_a_solved_assignment_passes_but_was_not_graded(student: Student) -> None:
    process = student.run("whichline", "check")
    assert process.returncode == 0
    board = rows(process.stdout).values()
    assert {cells[0] for cells in board} == {"passed"}
    points = [problem.points for problem in load_problems(ROOT).values()]
    assert [cells[2] for cells in board] == [f"{each:.1f}/{each:g}" for each in points]
    assert re.search(r"(\d+) of \1 public tests passed; the hidden suite was not run\.", process.stdout)
    assert process.stdout.endswith("\n15 of 15 points: now uv run cs336 submit\n")
    assert "Write this yourself" not in process.stdout


def test_an_unwritten_assignment_says_where_to_begin(student: Student) -> None:
    for name in ("adapters.py", FUNCTIONAL):
        student.unwrite(name)
    process = student.run("whichline", "check")
    assert process.returncode == 1
    assert {tuple(cells[::2]) for cells in rows(process.stdout).values()} >= {("not implemented", "0.0/2")}
    _, welcome, last = process.stdout.split("\n\n")
    assert welcome.startswith("Welcome! docs/assignment.md explains each problem.")
    assert [re.sub(r"\d+$", "N", line) for line in last.splitlines()] == [
        "Next: softmax",
        f"  open {FUNCTIONAL}:N",
        "  not implemented yet: write run_softmax in adapters.py:N",
        "uv run pytest -x -k test_softmax",
    ]
    assert len(process.stdout.splitlines()) <= 22


@pytest.mark.parametrize("command", [("whichline", "check"), ("pytest", "-k", "test_softmax and not grad")])
def test_an_error_of_the_search_is_shown_and_is_not_the_students(student: Student, command: tuple[str, ...]) -> None:
    student.replace(FUNCTIONAL, "exponentials.sum(dim,", "exponentials.sum(-1,")
    once = "import sys\nassert 'once' not in vars(sys), 'twice'\nsys.once = True\n"
    student.replace("adapters.py", "\n\nimport torch\n", f"\n\n{once}import torch\n")
    said = " ".join(student.run(*command).stdout.split())
    early = "The search for what is wrong in softmax ended early"
    why = "CannotFollowError: the code cannot be imported a second time: AssertionError: twice (observed.py:"
    assert f"{early}: {why}" in said
    assert "This is not your mistake: please show it to the staff of your course." in said


def shown(
    problems: Iterable[Problem], results: list[Result], findings: Sequence[Finding] = (), width: int = 80, **how: bool
) -> str:
    console = Console(width=width, height=20, file=StringIO())
    with console.capture() as board:
        console.print(render(score(problems, results, findings), Run(1), ROOT, **how))
    return board.get()


def test_the_board_fits_in_60_columns() -> None:
    problems = load_problems(ROOT)
    headline = "not implemented yet: write run_softmax in adapters.py:14"
    tests = ((each, name) for each in problems.values() for name in each.tests)
    ended = (Outcome.FAILED, Check.NOT_WRITTEN, headline)
    results = [Result(name, each.id, False, each.bonus, each.points, *ended) for each, name in tests]
    board = shown(problems.values(), results, width=60, whole=True)
    lines = board.splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["Problem", "State", "Tests", "Points"]
    assert len(rows(board)) == len(problems) == lines.index("") - 3
    assert "uv run cs336 check --watch  shows this after every save" in lines
    assert len(lines) - len(problems) <= 16  # below the table, the rest of the screen


def show_board(results: dict[str, str], explanations: list[Finding], everything: bool = False) -> list[str]:
    """The board's lines from "Next:" on: of tests that fail, by name, with their headlines."""
    failed = [Result(name, SOFTMAX, False, False, 1.0, Outcome.FAILED, Check.ANSWER, results[name]) for name in results]
    lines = shown([load_problems(ROOT)[SOFTMAX]], failed, explanations, everything=everything).splitlines()
    return [line.rstrip() for line in lines[lines.index("") + 1 :]]


def test_what_explains_a_test_stands_in_place_of_its_headline_and_is_told_once() -> None:
    results = {"test_softmax[1d]": "the answer is NaN", "test_softmax[2d]": "RuntimeError: in-place"}
    raising = ("RuntimeError: in-place.", "This raises in every call.")
    crash = Finding(SOFTMAX, "crash", raising, tests=("test_softmax[2d]",))
    expected = ("Expected x − max; found x.",)
    number = Finding(SOFTMAX, "number", expected, file="a.py", line=7, tests=("test_softmax[1d]",))
    first = ["Next: test_softmax[2d]", "  RuntimeError: in-place.", "  This raises in every call."]
    last = "uv run pytest -x -k test_softmax"
    assert show_board(results, [crash, number]) == [*first, "  and 1 more place: a.py:7", last]
    found = ["", "What your code does: softmax", "  Expected x − max; found x."]
    assert show_board(results, [crash, number], everything=True) == [*first, last, *found]
    assert "What your code does: softmax" not in show_board(results, [crash], everything=True)
    assert show_board(results, []) == ["Next: test_softmax[1d]", "  the answer is NaN", last]


@pytest.mark.parametrize(("raised", "below"), [("IndexError", ["and 1 more place: a.py:7"]), ("", ["", "Found 2x."])])
def test_below_an_error_of_the_code_pytest_names_the_other_places_alone(raised: str, below: list[str]) -> None:
    first = Finding(SOFTMAX, "first", ("Index 7 is too large.",), file="a.py", line=3, tests=("test_softmax[1d]",))
    other = Finding(SOFTMAX, "other", ("Found 2x.",), file="a.py", line=7, tests=("test_softmax[2d]",))
    tests = (*first.tests, *other.tests)
    failed = [Result(test, SOFTMAX, False, False, 1.0, Outcome.FAILED, Check.CALL, raised=raised) for test in tests]
    assert list(shorten_findings([first, other], failed)) == ["Index 7 is too large.", *below]


def test_two_places_that_are_proved_together_are_both_shown_and_what_to_read_once() -> None:
    first = Finding(SOFTMAX, "first", ("Expected x.",), section="2 Softmax", tests=("test_softmax[1d]",))
    second = replace(first, id="second", said=("Expected y.",), proof="With these two corrected, it passes.")
    lines = show_board({"test_softmax[1d]": "the answer is wrong"}, [first, second])
    assert lines[1:-1] == [
        "  Expected x.",
        "",
        "  Expected y.",
        "  With these two corrected, it passes.",
        "    Read:  docs/assignment.md, section 2 Softmax",
    ]


def show_end(unwritten: set[str]) -> str:
    """The end of the board when all that is required passes, and some bonus problems are still to be written."""
    problems = load_problems(ROOT)
    passed = [Result(id, id, False, each.bonus, each.points, Outcome.PASSED) for id, each in problems.items()]
    miss = partial(replace, outcome=Outcome.FAILED, check=Check.NOT_WRITTEN, headline="not implemented yet")
    return shown(problems.values(), [miss(each) if each.problem in unwritten else each for each in passed], whole=True)


def test_when_all_that_is_required_passes_it_says_what_bonus_is_left() -> None:
    left = "15 of 15 points: now uv run cs336 submit\nUp to 5 bonus points are left: multihead_attention, decoding\n"
    assert left in show_end({"multihead_attention", "decoding"})
    assert show_end(set()).endswith("\n15 of 15 points: now uv run cs336 submit\n")


@pytest.mark.parametrize(
    ("id", "written", "opens"),
    [
        ("rope", (), "def rotary_position_embedding("),
        ("scaled_dot_product_attention", (), "def scaled_dot_product_attention("),
        ("linear", (), "def __init__("),
        ("softmax", (FUNCTIONAL,), ""),
    ],
)
def test_the_opened_line_is_the_problems_own(student: Student, id: str, written: tuple[str, ...], opens: str) -> None:
    for name in {FUNCTIONAL, LINEAR, ROPE}.difference(written):
        student.unwrite(name)
    file, _, line = begin_at(student.folder, load_problems(ROOT)[id]).partition(":")
    before = (student.folder / file).read_text().splitlines()[: int(line)] if opens else []
    assert next((each.strip() for each in reversed(before) if "def " in each), "").startswith(opens)
    assert bool(file) == bool(opens)


def test_a_line_that_says_what_is_to_do_is_opened(student: Student) -> None:
    student.unwrite(LINEAR)
    student.replace(LINEAR, "raise NotImplementedError", 'raise NotImplementedError("todo")')
    assert begin_at(student.folder, load_problems(ROOT)["linear"]).startswith(f"{LINEAR}:")


def test_partial_credit_and_what_would_be_too_slow_when_graded_from_a_folder_below(student: Student) -> None:
    """An input changed in place costs the gradients and the test of that: three of eleven parts of two points."""
    wait = "import time; end = time.process_time() + 3.1 * (not hasattr(time, 'once')); time.once = True"
    wait += "\n    while time.process_time() < end: pass"
    student.replace(FUNCTIONAL, "maximum = logits.detach()", f"{wait}\n    logits += 1\n    maximum = logits.detach()")
    student.folder = student.folder / "cs336_basics" / "nn"
    process = student.run("whichline", "check", "softmax")
    assert process.returncode == 1
    assert rows(process.stdout) == {"softmax": ["failing", "14/17", "1.5/2"]}
    assert re.search(r"Slow: test_softmax\[.*\] took \d+ s of processor time\. A call that takes", process.stdout)


def test_a_crash_keeps_the_verdicts_that_came_before_it(student: Student) -> None:
    student.replace(ROPE, "if token_positions.numel() > 0:", "import os; os._exit(7)\n        if 1:")
    process = student.run("whichline", "check", "linear", "rope", "multihead_self_attention")
    assert process.returncode == 1
    board = rows(process.stdout)
    assert board["linear"][0] == "passed"
    assert board["rope"] == ["failing", "0/16", "0.0/2"]
    assert board["multihead_self_attention"][0] == "not run"
    assert "the process ended during this test, with exit status 7" in process.stdout


def test_what_a_failing_test_prints_is_shown_below_it(student: Student) -> None:
    student.replace(LINEAR, "return einsum(", "print('x is', *x.shape)\n        print('W')\n        return -einsum(")
    process = student.run("whichline", "check", "linear")
    assert "\n  your code printed:\n    x is 3 5\n    W\nuv run pytest -x -k test_linear\n" in process.stdout


def test_a_setting_that_a_file_changes_for_all_code_is_below_the_board(student: Student) -> None:
    student.replace("adapters.py", "import torch\n", "import torch\n\ntorch.set_grad_enabled(False)\n")
    process = student.run("whichline", "check", "softmax")
    assert rows(process.stdout) == {"softmax": ["passed", "17/17", "2.0/2"]}
    assert "\nUndone when your files had been imported, here and in grading\n" in process.stdout
    assert "  adapters.py:9: torch.set_grad_enabled changes a setting" in process.stdout


def test_a_bonus_problem_may_fail(student: Student) -> None:
    student.replace("assignment.toml", "points = 15", "points = 14")
    student.replace("assignment.toml", 'title = "Linear layer"', 'title = "Linear layer"\nbonus = true')
    unwritten = "    raise NotImplementedError\n    (Linear(d_in"
    student.replace("adapters.py", "    return functional_call(Linear(d_in", unwritten)
    process = student.run("whichline", "check")
    assert rows(process.stdout)["linear (bonus)"] == ["not implemented", "0/5", "0.0/1"]
    assert process.returncode == 0
    assert student.run("whichline", "check", "linear").returncode == 1


def test_a_part_of_the_name_of_a_problem_will_do() -> None:
    problems = load_problems(ROOT)
    names = ("softmax", "attention", "multihead", "attention_module", "rotary", "Linear")
    found = "softmax scaled_dot_product_attention multihead_self_attention attention_module rope linear"
    assert [find_problem(problems, name).id for name in names] == found.split()


@pytest.mark.parametrize(
    ("line", "begin", "end"),
    [
        ("def broken(:", "\nSyntaxError: invalid syntax\nadapters.py:8\n    def broken(:\n", ""),
        ("import os; os._exit(0)", ": the process ended with status 0 before the", EXITS),
    ],
)
def test_files_that_cannot_be_imported(student: Student, line: str, begin: str, end: str) -> None:
    student.replace("adapters.py", "import torch\n", f"import torch\n{line}\n")
    process = student.run("whichline", "check")
    assert process.returncode == 1
    assert process.stderr.startswith(f"Error: the tests could not start{begin}")
    assert process.stderr.endswith(end)
    assert "Traceback" not in process.stderr


def test_what_cannot_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = "no assignment.toml in .* go to the folder of the assignment"
    for folder, more, message in ((tmp_path, (), outside), (ROOT, ("--spare",), "^Error: --spare needs --watch\n")):
        monkeypatch.chdir(folder)
        result = CliRunner().invoke(cs336, ["check", *more])
        assert result.exit_code == 1
        assert re.search(message, result.output)


def test_tests_are_counted_while_they_run(student: Student) -> None:
    student.replace(LINEAR, "return einsum(", "while True: pass\n        return einsum(")
    terminal = Terminal(student.folder, "check", "softmax", "linear", kind="xterm")
    terminal.shows("Importing torch and your files", "17 of 22 tests")
    terminal.press_ctrl_c()
    assert terminal.end() == 1


def check_until_endless(student: Student, file: str, line: str, endless: str, module: str = "whichline") -> Terminal:
    """`cs336 check` when it has come to what is `endless` before this line."""
    student.replace(file, line, f"open('running', 'w').close()\n{endless}{line}")
    terminal = Terminal(student.folder, "check", "softmax", "linear", module=module)
    terminal.wait_for(student.folder / "running")
    return terminal


def test_an_endless_loop_is_named_with_its_test_and_line_and_ctrl_c_shows_the_board_so_far(student: Student) -> None:
    (student.folder / "sooner.py").write_text(SOONER)
    terminal = check_until_endless(student, LINEAR, "return einsum(", "        while True: pass\n        ", "sooner")
    before, _, _ = (student.folder / LINEAR).read_text().partition("while True")
    place = f"{LINEAR}:{len(before.splitlines())}"
    terminal.expect(r"test_linear\[2d\] has been running for \d s")
    terminal.shows(place, "Ctrl-C ends it.")
    terminal.press_ctrl_c()
    terminal.shows("17/17", "0/5", "Next: test_linear[2d]", "you pressed Ctrl-C during this test", place)
    assert terminal.end() == 1


@pytest.mark.parametrize(
    ("file", "line", "endless", "said"),
    [
        (
            *(LINEAR, "return einsum(", f"        while {SOUGHT}: pass\n        x = 2 * x\n        "),
            ("Next: test_linear[2d]", "The search for what is wrong in linear did not end"),
        ),
        (
            *("adapters.py", "import torch\n", "while True: pass\n"),
            ("Error: you pressed Ctrl-C before the first test", ": is there an endless loop at the top of a file?"),
        ),
    ],
    ids=["in the search", "while the files are imported"],
)
def test_ctrl_c_outside_of_a_test(student: Student, file: str, line: str, endless: str, said: tuple[str, ...]) -> None:
    terminal = check_until_endless(student, file, line, endless)
    time.sleep(2)
    terminal.press_ctrl_c()
    terminal.shows(*said)
    assert terminal.end() == 1
