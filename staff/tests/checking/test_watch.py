"""`cs336 check --watch` in a real terminal: keys, saves, and student code that does its worst."""

import mmap
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from staff.tools.student import FUNCTIONAL, LINEAR, Student
from staff.tools.terminal import ENDED, Terminal, watching

pytestmark = pytest.mark.slow

RIGHT = "return einsum("
WRONG = "return 2 * einsum("
ENDLESS = "while True: pass\n        return einsum("
Watched = tuple[Student, Terminal]


def wait_until_nothing_runs_in(folder: Path) -> None:
    """Fail if something still runs after a minute: a process that imports torch notices late, on a busy machine."""
    deadline = time.monotonic() + 60
    while running := [
        p.info for p in psutil.process_iter(["cwd", "cmdline"]) if Path(p.info["cwd"] or "/").is_relative_to(folder)
    ]:
        assert time.monotonic() < deadline, running
        time.sleep(0.05)


def watched(folder: Path, *how: str) -> Iterator[Watched]:
    """One watch for many tests, since each starts a process that imports torch; a test mends what it breaks."""
    student = Student(folder)
    with watching(student, "linear", *how) as terminal:
        yield student, terminal
    wait_until_nothing_runs_in(folder)


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A watch that forks for each run."""
    yield from watched(tmp_path_factory.mktemp("fork"))


@pytest.fixture(scope="module")
def spare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A watch that has a process ready for each run, as where there is no fork."""
    yield from watched(tmp_path_factory.mktemp("spare"), "--spare")


# By night with a spare, too, which imports torch for each run.
most = pytest.mark.parametrize("either", ["fork", pytest.param("spare", marks=pytest.mark.nightly)], indirect=True)
each_way = pytest.mark.parametrize(
    "how", [pytest.param((), id="fork"), pytest.param(("--spare",), id="spare", marks=pytest.mark.nightly)]
)


@pytest.fixture
def either(request: pytest.FixtureRequest) -> Watched:
    return request.getfixturevalue(request.param)


@contextmanager
def saved(student: Student, terminal: Terminal, file: str, old: str, new: str) -> Iterator[None]:
    """Save a file with a change, and take the change back: then every test passes again."""
    student.replace(file, old, new)
    yield
    student.replace(file, new, old)
    terminal.shows("5/5", "h hint")


@pytest.mark.parametrize("either", ["fork", "spare"], indirect=True)
def test_a_save_shows_the_board_again(either: Watched) -> None:
    with saved(*either, LINEAR, RIGHT, WRONG):
        either[1].shows("0/5", "Next: test_linear[2d]", "the answer is wrong", "h hint")


def test_an_editor_that_saves_by_renaming(fork: Watched) -> None:
    student, terminal = fork
    file = student.folder / LINEAR
    for old, new, tests in ((RIGHT, WRONG, "0/5"), (WRONG, RIGHT, "5/5")):
        copy = file.with_suffix(".tmp")
        copy.write_text(file.read_text().replace(old, new))
        copy.replace(file)
        terminal.shows(tests, "h hint")


def test_a_save_that_the_file_system_does_not_report(fork: Watched) -> None:
    """Writing through a map of the file gives no event on Linux, like a save on the other side of a shared folder."""
    student, terminal = fork
    for old, new, tests in ((b'd_out")', b'd_ouT")', "0/5"), (b'd_ouT")', b'd_out")', "5/5")):
        with (student.folder / LINEAR).open("r+b") as file, mmap.mmap(file.fileno(), 0) as text:
            place = text.find(old)
            text[place : place + len(new)] = new
        terminal.shows(tests, "h hint")


def test_two_saves_of_one_size_in_one_second(fork: Watched) -> None:
    """Python's own cache would take the second for the first."""
    student, terminal = fork
    before = (student.folder / LINEAR).read_text()
    for factor, tests in ((2, "0/5"), (1, "5/5"), (3, "0/5"), (1, "5/5")):
        (student.folder / LINEAR).write_text(before.replace(RIGHT, f"return {factor} * einsum("))
        terminal.shows(tests, "h hint")
    (student.folder / LINEAR).write_text(before)
    terminal.shows("5/5", "h hint")


@most
def test_an_endless_loop_is_named_and_ends_with_the_next_save(either: Watched) -> None:
    student, terminal = either
    with saved(student, terminal, LINEAR, RIGHT, ENDLESS):
        terminal.shows("Next: test_linear[2d]", "has been running for 2 s, now in", f"{LINEAR}:", "endless")


def test_a_state_is_shown_when_it_is_known(fork: Watched) -> None:
    """The second second of a run that takes three: nothing is wrong, and nothing is said to be."""
    student, terminal = fork
    with saved(student, terminal, LINEAR, RIGHT, f"import time; time.sleep(0.6)\n        {RIGHT}"):
        terminal.expect("linear +running")
        terminal.shows("passed", "5/5", "h hint")
        assert "failing" not in str(terminal.before)
        assert "endless loop" not in str(terminal.before)


@each_way
def test_an_endless_loop_does_not_outlive_the_command(student: Student, how: tuple[str, ...]) -> None:
    student.replace(LINEAR, RIGHT, ENDLESS)
    terminal = Terminal(student.folder, "check", "--watch", "linear", *how)
    terminal.shows("has been running for")
    os.kill(terminal.process_id, signal.SIGKILL)
    wait_until_nothing_runs_in(student.folder)


@most
def test_student_code_cannot_hurt_the_loop(either: Watched) -> None:
    ended = "the process ended during this test, with exit status"
    signalled = ("import ctypes; ctypes.string_at(0)", f"{ended} -11")
    reads = ("input()", "EOFError: EOF when reading a line")
    for code, words in (("import os; os._exit(3)", f"{ended} 3"), signalled, ("exit()", "SystemExit"), reads):
        with saved(*either, LINEAR, RIGHT, f"{code}\n        {RIGHT}"):
            either[1].shows("0/5", words)


IMPORT, KILL = "import torch\n", "import os; os.kill(os.getppid(), 9); os._exit(3)"
BROKEN = {"def broken(:": "SyntaxError: invalid syntax", "exit()": "SystemExit", "import no": "ModuleNotFoundError"}
# What is saved in which file in the place of what, and what the watch shows then.
SAVES = {
    "an endless loop at the top of a file": (
        *("adapters.py", IMPORT, f"{IMPORT}while True: pass\n"),
        ("Importing your files, 2 s so far, now in adapters.py:", "at the top of a file?"),
    ),
    "what kills its parent": (LINEAR, RIGHT, f"{KILL}\n        {RIGHT}", ("0/5", "with exit status -9")),
    # The annotations of the student's files, which the fork imports after the tests, are checked as in a plain check.
    "a wrong type": (
        *(LINEAR, RIGHT, "return x.bool() if True else einsum("),
        ("Linear.forward returned a tensor of bool, expected float", "h hint"),
    ),
    "other tests": ("tests/test_3_linear.py", "case.check(adapters", "case.check(2 * adapters", ("1/5", "h hint")),
} | {
    code: ("adapters.py", IMPORT, f"{IMPORT}{code}\n", ("The tests could not start", words, "h hint"))
    for code, words in BROKEN.items()
}


@pytest.mark.parametrize("what", SAVES)
def test_what_is_saved_is_told_and_hurts_nothing(fork: Watched, what: str) -> None:
    file, old, new, words = SAVES[what]
    with saved(*fork, file, old, new):
        fork[1].shows(*words)


def test_keys(student: Student) -> None:
    student.replace(LINEAR, RIGHT, WRONG)
    with watching(student, "softmax", "linear", "multihead_self_attention") as terminal:
        terminal.send("\x1b[A")  # an arrow, which ends in the letter A
        terminal.send("h")
        terminal.shows("Hints for linear, 1 of 2", " 1. The weight has shape (d_out, d_in).", "h hint")
        terminal.send("hh")
        terminal.shows("Hints for linear, 2 of 2", "section 4")
        terminal.send("n")
        terminal.shows("0 of 5 public tests passed", "h hint")
        terminal.send("n")
        terminal.shows("multihead_self_attention", "of 23 public tests passed", "h hint")
        terminal.send("a")
        terminal.shows("softmax", "public tests passed", "h hint")
        terminal.send("x")


def test_an_assignment_that_cannot_be_read(student: Student) -> None:
    terminal = Terminal(student.folder, "check", "--watch", "linear")
    terminal.expect(ENDED)
    student.replace("assignment.toml", "test_linear = 4", "test_linear = ")
    terminal.shows("Error: ", "assignment.toml is not TOML")
    assert terminal.end() == 1
    wait_until_nothing_runs_in(student.folder)


def test_fixtures_that_cannot_be_collected(fork: Watched) -> None:
    student, terminal = fork
    cases, elsewhere = student.folder / "fixtures" / "linear", student.folder / "fixtures" / "elsewhere"
    cases.rename(elsewhere)
    with saved(student, terminal, "adapters.py", "import torch\n", "import torch\n\n"):
        terminal.shows("no case matches linear", "h hint")
        elsewhere.rename(cases)


@each_way
def test_ctrl_c_ends_it_and_leaves_the_terminal_as_it_was(student: Student, how: tuple[str, ...]) -> None:
    terminal = Terminal(student.folder, "check", "--watch", "linear", *how)
    terminal.expect(ENDED)
    assert not terminal.echoes()
    terminal.press_ctrl_c()
    terminal.expect("\r\n$")
    assert terminal.end() == 0
    wait_until_nothing_runs_in(student.folder)


def test_a_save_runs_what_it_can_reach(student: Student) -> None:
    ran = student.folder / "ran"
    student.replace(LINEAR, RIGHT, f"open({str(ran)!r}, 'a').write('x'); {RIGHT}")
    with watching(student, "linear", "blockwise_attention", "multihead_self_attention") as terminal:
        before = ran.read_text()
        student.replace("cs336_basics/nn/blockwise.py", "total.clamp(min=1.0)", "total.clamp(min=2.0)")
        terminal.expect("blockwise_attention .* failing")
        terminal.expect(ENDED)
        assert ran.read_text() == before
        student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
        terminal.expect("multihead_self_attention +failing")
        assert ran.read_text() > before
