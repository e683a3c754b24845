"""Breaking a right program, one token at a time: which mistakes do the tests notice, and of which is the line told?"""

import ast
import io
import random
import shutil
import signal
import sys
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module, invalidate_caches
from pathlib import Path
from tempfile import TemporaryDirectory

from whichline.engine.assignment import ADAPTERS, FILE_NAME, Problem, read_assignment
from whichline.engine.suite import Suite
from whichline.locate.explain import explain
from whichline.locate.observed import Observed
from whichline_grader.release.handout import BEGIN, END

SECONDS = 60  # for one mistake; it may loop for ever
NEAR = 2  # lines
OUTCOMES = AT, CLOSE, PROVED, ELSEWHERE, SILENT, OURS, NOT_IMPORTED, ENDLESS, PASSED = (
    "told at the line",
    f"told at most {NEAR} lines away",
    "told elsewhere, with a proof",
    "told elsewhere",
    "no line told",
    "ended the search by an error of its own: please report it",
    "not imported",
    f"not done in {SECONDS} s",
    "noticed by no public test",
)
PAIRS = ("+ -", "* /", "** *", "// /", "@ *", "< <=", "> >=", "== !=", "and or", "True False", "sum mean", "amax amin")
PAIRS += ("max min", "sin cos", "exp log", "tril triu", "any all", "ones zeros", "sqrt square", "floor ceil", "is in")
SWAPS = {one: other for pair in PAIRS for one, other in (pair.split(), pair.split()[::-1])}


@dataclass(frozen=True)
class Mistake:
    """One token of a file, replaced."""

    file: str  # as students know it
    line: int  # of the token
    column: int
    old: str  # what stands there, and what is put there
    new: str

    def make(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        text, start = lines[self.line - 1], self.column
        lines[self.line - 1] = f"{text[:start]}{self.new}{text[start + len(self.old) :]}"
        return "".join(lines)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}: `{self.old}` became `{self.new}`"


def list_mistakes(file: str, source: str, seed: int, lines: Collection[int] = ()) -> list[Mistake]:
    """A mistake for each token of a source that can be another one, in some lines or in all."""
    choice = random.Random(f"{seed} {file}")  # noqa: S311 (no secret)
    values = _list_values(ast.parse(source))
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line, column = token.start
        if (lines and line not in lines) or token.start[0] != token.end[0]:
            continue
        others = values.get(token.start, ()) if token.type == tokenize.NAME else ()
        new = SWAPS.get(token.string) or _change(token, choice) or (choice.choice(others) if others else "")
        mistake = Mistake(file, line, column, token.string, new)
        if new:
            with suppress(SyntaxError):
                ast.parse(mistake.make(source))
                found.append(mistake)
    return found


def _change(token: tokenize.TokenInfo, choice: random.Random) -> str:
    """Another number, or a pattern with two axes exchanged."""
    text = token.string
    if token.type == tokenize.NUMBER:
        number = float(text) if text.replace(".", "", 1).isdigit() else 0.0
        return str(abs(int(text) + choice.choice((-1, 1)))) if text.isdigit() else f"(2 * {text})" if number else ""
    axes = sorted({*text.partition("->")[2].replace("(", " ").replace(")", " ").strip("\"' ").split()} - {"..."})
    if token.type == tokenize.STRING and len(axes) > 1:
        one, other = choice.sample(axes, 2)
        before, arrow, after = text.partition("->")
        words = after.replace("(", "( ").replace(")", " )").replace('"', ' "').split(" ")
        exchanged = " ".join({one: other, other: one}.get(word, word) for word in words)
        return before + arrow + exchanged.replace("( ", "(").replace(" )", ")").replace(' "', '"')
    return ""


def _list_values(tree: ast.Module) -> Mapping[tuple[int, int], Sequence[str]]:
    """Map each place where a function reads a variable to the others that have a value there."""
    found: dict[tuple[int, int], Sequence[str]] = {}
    for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)):
        names = dict.fromkeys(each.arg for each in (*function.args.args, *function.args.kwonlyargs))
        for statement in function.body:
            read = [each for each in ast.walk(statement) if isinstance(each, ast.Name)]
            for each in (each for each in read if isinstance(each.ctx, ast.Load) and each.id in names):
                found[each.lineno, each.col_offset] = [name for name in names if name not in (each.id, "self")]
            names |= dict.fromkeys(each.id for each in read if isinstance(each.ctx, ast.Store))
    return found


def list_solution_mistakes(root: Path, problems: Mapping[str, Problem], seed: int, most: int) -> list[Mistake]:
    """Some mistakes in the solutions of problems, drawn with a seed."""
    choice = random.Random(seed)  # noqa: S311 (no secret)
    found: list[Mistake] = []
    for file in dict.fromkeys(file for problem in problems.values() for file in problem.files):
        source, inside, lines = (root / file).read_text(encoding="utf-8"), False, set[int]()
        for number, line in enumerate(source.splitlines(), 1):
            inside = line.strip() == BEGIN or (inside and line.strip() != END)
            lines |= {number} if inside else set()
        found += list_mistakes(file, source, seed, lines) if lines else []
    return sorted(choice.sample(found, min(most, len(found))), key=lambda each: (each.file, each.line, each.column))


def try_in_tree(suite: Suite, mistake: Mistake) -> str:
    """Make a mistake in a copy of what students write, and say what becomes of it."""
    root, assignment = suite.root, read_assignment(suite.root)
    with TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(root / assignment.package, tree / assignment.package)
        for name in (ADAPTERS, FILE_NAME):
            shutil.copy(root / name, tree)
        (tree / mistake.file).write_text(mistake.make((root / mistake.file).read_text(encoding="utf-8")), "utf-8")
        own = {"adapters", assignment.package}
        for name in [each for each in sys.modules if each.partition(".")[0] in own]:
            del sys.modules[name]
        invalidate_caches()
        sys.path.insert(0, folder)
        try:
            ours = [each for each in suite.tests if mistake.file in suite.problems[each.problem].files]
            broken = replace(suite, root=tree, tests=ours)
            try:
                broken.calls.adapters = import_module("adapters")
            except Exception:
                return NOT_IMPORTED
            return find_outcome(broken, Observed(broken.calls.adapters, broken.has_written), mistake)
        finally:
            sys.path.remove(folder)


def find_outcome(suite: Suite, observed: Observed, mistake: Mistake) -> str:
    """Run the tests on a program with a mistake, and say what its author would read."""
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)  # no test takes that for an error of its own
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        results = [suite.run(test) for test in suite.tests]
        if all(each.passed for each in results):
            return PASSED
        errors: list[str] = []
        placed = [each for each in explain(suite, results, observed=observed, errors=errors) if each.file]
    except KeyboardInterrupt:
        return ENDLESS
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    if errors:
        return OURS
    away = [abs(each.line - mistake.line) if each.file.endswith(mistake.file) else NEAR + 1 for each in placed]
    if away and min(away) <= NEAR:
        return AT if 0 in away else CLOSE
    return PROVED if any(each.proof for each in placed) else ELSEWHERE if placed else SILENT


def describe_outcomes(outcomes: Sequence[tuple[Mistake, str]]) -> Iterator[str]:
    """A table of what became of some mistakes, and the mistakes whose line is not told."""
    width = len(str(len(outcomes)))
    for outcome in OUTCOMES:
        if those := [mistake for mistake, each in outcomes if each == outcome]:
            yield f"{len(those):{width}} of {len(outcomes)} {outcome}"
            yield from (f"  {each}" for each in those if outcome not in (AT, CLOSE))
