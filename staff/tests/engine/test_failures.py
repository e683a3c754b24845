"""What a student reads when a test fails: their mistake and their lines, and no frame of anyone else."""

import re
import subprocess
import sys
import time

import pytest

from staff.tools.student import FUNCTIONAL, LINEAR, Student
from staff.tools.terminal import Terminal

pytestmark = pytest.mark.slow

# What is found in a fraction of a second.
DOUBLED = (LINEAR, "return einsum(", "return 2 * einsum(")
TWICE = "Expected the answer; found 2 times that value."
SETTINGS = {
    "set_grad_enabled(False)": "Write `with torch.no_grad():` around what needs no gradients.",
    "set_default_dtype(torch.float64)": "Pass `dtype=` to what makes a tensor.",
    "set_default_device('meta')": "Pass `device=` to what makes a tensor.",
}
ONE = "tests/test_3_linear.py::test_linear[2d]"
PRINTS = """print("printed", file=KEPT)
    print("told", file=sys.stderr)
    os.write(1, b"written ")
    warnings.warn("warned")
    logits = at_least_float32(x)"""
COMPILED = """\
@torch.jit.script
def scores_of(Q: Tensor, K: Tensor) -> Tensor:
    return Q @ K.mT / Q.shape[-1]


def attention_scores("""


def failures(student: Student, *arguments: str) -> str:
    process = student.run("pytest", "-q", *arguments)
    assert process.returncode == 1, process.stdout + process.stderr
    return " ".join(process.stdout.split())  # as it reads, wherever its lines were wrapped


def test_what_is_not_written_takes_one_line_for_each_problem(student: Student) -> None:
    student.unwrite(FUNCTIONAL)
    process = student.run("pytest", "-k", "softmax or scaled_dot_product_attention or rope")
    assert process.returncode == 1
    summary = re.sub(r"\d+ deselected", "N deselected", process.stdout.partition("Not written yet")[2]).splitlines()[1:]
    assert [re.sub(r":\d+", ":N", re.sub(r"=* (.*) in .* =*", r"\1", line)) for line in summary] == [
        f"softmax                        17 tests  {FUNCTIONAL}:N",
        f"scaled_dot_product_attention   37 tests  {FUNCTIONAL}:N",
        f"rope                           16 tests  {FUNCTIONAL}:N",
        f"multihead_self_attention       13 tests  {FUNCTIONAL}:N",
        "",
        "N deselected, 83 not written yet",
        "To begin:  uv run cs336 check",
        f"Now open:  {FUNCTIONAL}:N",
    ]
    assert "FAILED" not in process.stdout
    assert len(process.stdout.splitlines()) <= 24


def test_the_last_line_says_what_to_write_next_when_some_is_written(student: Student) -> None:
    student.unwrite(LINEAR)
    *_, end, last = student.run("pytest", "-k", "linear or rope").stdout.splitlines()
    assert "16 passed" in end
    assert re.sub(r":\d+", ":N", last) == "Now open:  cs336_basics/nn/linear.py:N"


@pytest.mark.parametrize(("how", "times"), [((), 1), (("-s",), 2)], ids=["captured", "not captured"])
def test_only_the_calls_of_the_tests_print(student: Student, how: tuple[str, ...], times: int) -> None:
    """Two tests fail, and pytest shows the output of the first; what looks for the mistake makes dozens of calls."""
    student.replace(FUNCTIONAL, "import torch\n", "import os\nimport sys\nimport warnings\n\nimport torch\n")
    student.replace(FUNCTIONAL, "\ndef softmax(", "\nKEPT = sys.stdout\n\n\ndef softmax(")
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", PRINTS)
    student.replace(FUNCTIONAL, "exponentials.sum(dim,", "exponentials.sum(-1,")
    process = student.run("pytest", "-k", "test_softmax and (2d-first-dim or 3d-first-dim)", *how)
    assert "With the sum of exp(x − max) here, 5 of the 6 failing tests pass." in process.stdout
    said = process.stdout + process.stderr
    assert said.count("printed") == said.count("written") == times
    assert len(re.findall(r"^told$", said, re.M)) == times
    assert "2 failed" in process.stdout
    assert "2 warnings" in process.stdout


def test_a_warning_is_its_place_and_what_it_begins_with(student: Student) -> None:
    student.replace(FUNCTIONAL, "    scores = einsum(queries", "    K.T\n    scores = einsum(queries")
    warned, rest, last = student.run("pytest", "-k", "3d-no-mask").stdout.splitlines()[-3:]
    assert re.fullmatch(rf"{FUNCTIONAL}:\d+: UserWarning: The use of `x.T` on tensors of", warned)
    assert rest.startswith("  dimension other than 2 ")
    assert "1 warning in" in last
    assert "K.T" in student.run("pytest", "-v", "-k", "3d-no-mask").stdout


def test_a_test_that_takes_long(student: Student) -> None:
    (student.folder / "conftest.py").write_text("import whichline.plugin\nwhichline.plugin.LONG = 1.0\n")
    slow = "import time; time.sleep(2)  # this line\n    logits = at_least_float32(x)"
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", slow)
    process = student.run("pytest", "-q", "-k", "test_softmax and (1d or 2d)")
    before, _, _ = (student.folder / FUNCTIONAL).read_text().partition("# this line")
    line = f"{FUNCTIONAL}:{len(before.splitlines())}"
    assert process.stderr == (
        f"\ntest_softmax[1d] has been running for 1 s, now in {line}: is there an endless loop in your code?\n"
        "Ctrl-C ends it. This is said once; time spent waiting for a busy machine does not count.\n"
    )


def test_one_thread_computes_and_torch_ends_silently(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    student.replace(FUNCTIONAL, "import math\n", "import gc\nimport math\nimport torch._dynamo\ngc.freeze()\n")
    one = "assert torch.get_num_threads() == 1\n    logits = at_least_float32(x)"
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", one)
    command = [sys.executable, "-m", "pytest", "-q", "-k", "test_softmax"]  # no fork, whose end is none of Python's
    process = subprocess.run(command, cwd=student.folder, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.nightly
def test_one_mistake_takes_less_than_a_screen(student: Student) -> None:
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    short = student.run("pytest", "-q").stdout.splitlines()
    assert len(short) <= 24
    assert max(map(len, short)) <= 80
    begin = short.index("")
    assert begin > short.index("With √d_k here, all 33 failing tests pass.")
    assert short[begin + 1 : begin + 4] == [
        "scaled_dot_product_attention   33 of 37 tests fail",
        "multihead_self_attention       19 of 23 tests fail due to an earlier one",
        "blockwise_attention (bonus)    25 of 27 tests fail, 24 due to an earlier one",
    ]
    titles = [line.strip("= ") for line in short if line.startswith("==")]
    assert titles == ["What your code does: scaled_dot_product_attention"]
    assert "It also explains failing tests of 5 other problems." in short
    *_, place, case = short
    assert re.sub(r":\d+", ":N", place) == f"Now open:  {FUNCTIONAL}:N"
    assert case == "To see it: uv run cs336 debug --case attention/other-by-hand"


def test_settings_that_a_file_changes_for_all_code_are_undone_and_their_lines_are_named(student: Student) -> None:
    """Of the gradients, the table of angles and the masks, which depend on them, nothing is told."""
    student.replace(FUNCTIONAL, "import torch\n", "\ntorch.".join(["import torch\n", *SETTINGS]) + "\n")
    lines = (student.folder / FUNCTIONAL).read_text().splitlines()
    process = student.run("pytest", "-q", "-k", "gradients or test_rope or test_multihead_self_attention")
    assert process.returncode == 0, process.stdout
    output = " ".join(process.stdout.split())
    assert "Undone when your files had been imported, here and in grading" in output
    for changes, instead in SETTINGS.items():
        name, place = changes.partition("(")[0], f"{FUNCTIONAL}:{lines.index(f'torch.{changes}') + 1}"
        assert f"{place}: torch.{name} changes a setting for all code, the tests included. {instead}" in output


def test_what_a_compiler_would_take_stays_as_it_is(student: Student) -> None:
    student.replace(FUNCTIONAL, "def softmax(", "@torch.compile(fullgraph=True)\ndef softmax(")
    student.replace(FUNCTIONAL, "def attention_scores(", COMPILED)
    einsum = 'einsum(queries, keys, "... queries d_k, ... keys d_k -> ... queries keys") / math.sqrt(Q.shape[-1])'
    student.replace(FUNCTIONAL, einsum, "scores_of(queries, keys)")
    process = student.run("pytest", "-q", "-k", "3d-no-mask or test_softmax")
    assert "Expected √d_k; found d_k." in process.stdout, process.stdout


def test_a_mistake_is_told_where_adapters_import_at_their_top(student: Student) -> None:
    """Such functions are there before the tests run; elsewhere an adapter imports what it calls when it is called."""
    line = "from cs336_basics.nn.functional import scaled_dot_product_attention\n"
    student.replace("adapters.py", "import torch\n", f"import torch\n{line}")
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    assert "Expected √d_k; found d_k." in failures(student, "-k", "3d-no-mask")


def test_an_editor_finds_the_tests_and_runs_one(student: Student) -> None:
    student.replace(*DOUBLED)
    found = student.run("pytest", f"--rootdir={student.folder}", "--collect-only", "-q")
    assert (found.returncode, ONE in found.stdout.splitlines()) == (0, True)
    assert TWICE in student.run("pytest", f"--rootdir={student.folder}", ONE).stdout.splitlines()
    student.run("pytest", "-q", "-k", "test_linear or test_softmax and 1d")
    assert "passed" not in student.run("pytest", "--lf", "-q").stdout


def test_a_test_that_was_selected_alone_is_explained_as_in_a_run_of_all(student: Student) -> None:
    """What is right in another problem, whose tests were not selected, is not blamed."""
    student.replace(FUNCTIONAL, "torch.where(mask, scores, -math.inf)", "scores.masked_fill(mask == 0, -1e9)")
    process = student.run("pytest", "-x", "-k", "test_scaled_dot_product_attention")
    before, _, end = process.stdout.partition("Expected the masked, scaled scores; found −1e+09 where −inf belongs")
    assert "scores.masked_fill(mask == 0, -1e9)" in before
    assert "all 3 failing tests pass" in end
    assert "To find this, tests that you did not select were run, too." in end


def test_a_place_in_the_function_of_another_problem_is_told(student: Student) -> None:
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    output = student.run("pytest", "-q", "-k", "test_multihead_self_attention").stdout
    assert re.findall(r"^=+ What your code does: (\w+) =+$", output, re.M) == ["multihead_self_attention"]
    assert "Expected √d_k; found d_k." in output
    assert "With √d_k here, all 19 failing tests pass." in output
    assert "\n\n" not in output
    assert f"\nNow open:  {FUNCTIONAL}:" in output


def test_two_mistakes_are_both_told_in_forty_lines_and_no_bonus_beside_them(student: Student) -> None:
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "math.sqrt(Q.shape[-1] + 1)")
    student.replace(FUNCTIONAL, "exponentials.sum(dim,", "exponentials.sum(-1,")
    short = student.run("pytest", "-q", "-k", "softmax or scaled_dot or blockwise").stdout
    assert re.findall(r"^=+ What your code does: (\w+) =+$", short, re.M) == ["scaled_dot_product_attention", "softmax"]
    assert "Expected d_k, 11; found 12." in short
    assert "Expected the sum of exp(x − max)" in short
    assert len(short.splitlines()) <= 40


def test_a_bonus_is_told_of_when_all_that_is_required_passes(student: Student) -> None:
    student.replace("cs336_basics/nn/attention_module.py", "softmax(scores, dim=-1)", "softmax(scores, dim=-2)")
    short = student.run("pytest", "-q", "-k", "linear or attention_module").stdout
    assert "What your code does: attention_module" in short


def test_what_nothing_explains_is_shown_by_its_smallest_failure_and_a_line_for_each_kind(student: Student) -> None:
    student.replace("assignment.toml", "allowed = [", 'feedback = "tests"\nallowed = [')
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    short = student.run("pytest", "-k", "test_scaled_dot_product_attention").stdout
    assert re.findall(r"^_+ (\S+) _+$", short, re.MULTILINE) == ["test_scaled_dot_product_attention[3d-square]"]
    first = student.run("pytest", "-q", "--tb=line", "-k", "test_scaled_dot_product_attention[3d-no-mask]").stdout
    (headline,) = re.findall("the answer is wrong in .* places", first)
    assert re.search(f" more, the first: {headline}\n  3d-no-mask, 3d-causal, ", short)


def test_a_cause_stands_above_what_nothing_explains_and_above_the_counts(student: Student) -> None:
    student.replace("assignment.toml", 'id = "softmax"', 'id = "softmax"\nfeedback = "tests"')
    student.replace(FUNCTIONAL, "exponentials.sum(dim,", "exponentials.sum(-1,")
    student.replace(*DOUBLED)
    short = student.run("pytest", "-q", "-k", "test_linear or test_softmax and first-dim").stdout
    titles = ["What your code does: linear", TWICE, "= FAILURES =", "softmax                        "]
    places = [short.index(title) for title in titles]
    assert places == sorted(places)
    everything = student.run("pytest", "-v", "-k", "test_linear").stdout
    assert everything.index("= FAILURES =") < everything.index("What your code does: linear")


def test_every_failure_is_shown_to_whoever_asks_and_the_mistake_is_told_all_the_same(student: Student) -> None:
    student.replace(*DOUBLED)
    arguments = ["pytest", "-k", "test_linear or test_softmax and 1d"]
    short = student.run(*arguments).stdout
    assert "FAILED" not in short
    assert "= 5 failed, 1 passed, " in short
    for asked in (("-sv", "--tb=native"), ("--tb=short",)):
        process = student.run(*arguments, *asked)
        assert len(re.findall(r"^_+ \S+ _+$", process.stdout, re.MULTILINE)) == 5
        assert TWICE in process.stdout.splitlines()
        assert not re.search("Traceback|whichline", process.stdout + process.stderr)
    lines = student.run(*arguments, "-rf", "--tb=line").stdout
    assert lines.count("FAILED tests/test_3_linear.py::test_linear") == 5
    assert len(re.findall(r"^tests/\S+:\d+: the .* is wrong in .*$", lines, re.M)) == 5


def test_a_breakpoint_stops_once_in_each_call_and_nothing_is_said_of_time(student: Student) -> None:
    (student.folder / "conftest.py").write_text("import whichline.plugin\nwhichline.plugin.LONG = 1.0\n")
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", "breakpoint()\n    logits = 2 * at_least_float32(x)")
    terminal = Terminal(student.folder, "-k", "test_softmax and (1d or 2d)", module="pytest")
    terminal.shows("(Pdb)")
    time.sleep(1.5)  # in which it would be said that the test takes long
    terminal.sendline("p tuple(x.shape)")
    terminal.shows("(7,)", "(Pdb)")
    assert "endless loop" not in str(terminal.before)
    terminal.sendline("c")
    terminal.shows("(Pdb)")
    terminal.sendline("c")
    terminal.end()
    said = str(terminal.before)
    assert "2 failed" in said
    assert "(Pdb)" not in said
    assert "No line of your code was found" not in said  # none was looked for: that would have stopped there again


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (" / math.sqrt(Q.shape[-1])", "", "With the scaled scores here, all 33 failing tests pass."),
        ("scores = einsum(queries, keys", "scores = einsum(queries.mT, keys", "RuntimeError"),
    ],
    ids=["where the wrong number is", "where it raises"],
)
def test_the_debugger_asks_in_the_students_frame(student: Student, old: str, new: str, said: str) -> None:
    student.replace(FUNCTIONAL, old, new)
    chosen = ("-k", "test_scaled_dot_product_attention and 3d-no-mask")
    terminal = Terminal(student.folder, "--pdb", *chosen, module="pytest")
    terminal.shows(said, "(Pdb)")
    terminal.sendline("p keys.shape")
    terminal.shows("torch.Size", "(Pdb)")
    terminal.sendline("w")
    terminal.shows("run_scaled_dot_product_attention()", "attention_scores()", "(Pdb)")
    assert "whichline" not in str(terminal.before)
    terminal.sendline("q")
    terminal.end()


def test_q_leaves_the_debugger_and_the_tests(student: Student) -> None:
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", "breakpoint()\n    logits = 2 * at_least_float32(x)")
    terminal = Terminal(student.folder, "-k", "test_softmax", module="pytest")
    terminal.shows("(Pdb)")
    terminal.sendline("q")
    terminal.shows("Quitting debugger")
    terminal.end()
    assert "failed" not in str(terminal.before)


def test_a_wrong_answer_is_explained_beside_failing_tests_of_ones_own_that_are_shown_in_full(student: Student) -> None:
    student.replace(FUNCTIONAL, "math.sqrt(Q.shape[-1])", "Q.shape[-1]")
    (student.folder / "test_own.py").write_text("def test_one(): assert 1 == 2\ndef test_two(): assert 2 == 3\n")
    output = " ".join(student.run("pytest", "test_own.py", "tests/test_2_attention.py").stdout.split())
    assert "assert 1 == 2" in output
    assert "assert 2 == 3" in output
    assert output.count("FAILED test_own.py::") == 2
    assert "Expected √d_k; found d_k." in output
    assert output.endswith("To see it: uv run cs336 debug --case attention/other-by-hand")


def test_an_exception_shows_the_students_lines_alone(student: Student) -> None:
    student.replace(FUNCTIONAL, "... queries d_k, ... keys d_k ->", "... queries d_k, ... d_k keys ->")
    output = failures(student, "--tb=short", "-k", "test_scaled_dot_product_attention and 3d-more-keys")
    told, _, _ = output.partition("What your code does")  # which shows the last two of them again
    places = re.findall(r"\S+\.py:\d+, in (\S+)", told)
    functions = ["scaled_dot_product_attention", "attention_weights", "attention_scores"]
    assert places == ["run_scaled_dot_product_attention", *functions]
    assert told.count('einsum(queries, keys, "... queries d_k, ... d_k keys -> ... queries keys")') == 1
    assert "here queries is (2, 5, 16), keys is (2, 7, 16) 5 = queries, 7 = keys, 16 = d_k" in output
    assert "site-packages" not in output
    assert "whichline" not in output
    assert told.count("RuntimeError: einsum()") == 1


def test_a_detached_answer_an_input_changed_in_place_and_a_wrong_type(student: Student) -> None:
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", "logits = at_least_float32(x).detach()")
    student.replace(FUNCTIONAL, "maximum = logits.detach()", "logits += 1\n    maximum = logits.detach()")
    student.replace("adapters.py", "RotaryPositionalEmbedding(theta, ", "RotaryPositionalEmbedding(str(theta), ")
    names = "test_softmax_gradients and last-dim or softmax_leaves or test_rope and one-token"
    output = failures(student, "--tb=short", "-k", names)
    assert "the answer is cut off from its inputs, so nothing can be learned through it: look for .detach()" in output
    assert "in_features was changed: look for an operation in place, such as x /= ..." in output
    assert "RotaryPositionalEmbedding.__init__ got '10000.0' for theta expected float adapters.py:" in output


def test_a_missing_case_file(student: Student) -> None:
    (student.folder / "fixtures/softmax/1d.safetensors").write_bytes(b"half")
    student.replace(FUNCTIONAL, "logits = at_least_float32(x)", "logits = 2 * at_least_float32(x)")
    output = failures(student, "-k", "test_softmax and (1d or 2d)")
    assert "What your code does: softmax" in output  # the other cases explain it
    assert "1d.safetensors cannot be read" in output
    assert "take it again from the handout" in output


def test_a_folder_without_tests_says_where_they_are(student: Student) -> None:
    root = student.folder
    student.folder = root / "cs336_basics"
    process = student.run("pytest", "-q")
    assert process.returncode == 5
    assert process.stdout.startswith(f"\nThe tests are in another folder. To run them:  cd {root}\n")


def test_several_processes_are_refused(student: Student) -> None:
    process = student.run("pytest", "-n", "auto")
    assert process.returncode == 4
    assert process.stderr == "ERROR: leave -n out: the tests run in one process, and take only seconds\n\n"
