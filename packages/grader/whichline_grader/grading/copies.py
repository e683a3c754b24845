"""Functions of a submission that have the body of a reference, which the kit holds, for staff to look at."""

import ast
from functools import cache

from whichline.engine.problem_folder import list_problem_folders, read_reference
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.submission import MAX_PARSED_BYTES, Submission, is_the_courses

FEWEST = 3  # statements: a shorter body is anyone's


def find_copies(submission: Submission) -> tuple[str, ...]:
    """List the functions whose statements are those of a function in a reference, whatever the names are."""
    lines: list[str] = []
    for path, source in sorted(submission.files.items()):
        if len(source) <= MAX_PARSED_BYTES and not is_the_courses(path, source):
            for body, function in _list_bodies(source):
                if body in (known := _read_references()):
                    lines.append(f"{path}:{function.lineno} `{printable(function.name)}` is {known[body]}")
    return tuple(lines)


@cache
def _read_references() -> dict[str, str]:
    return {
        body: f"{function.name} of {problem}"
        for problem in list_problem_folders()
        for body, function in _list_bodies(read_reference(problem).encode())
    }


def _list_bodies(source: bytes) -> list[tuple[str, ast.FunctionDef]]:
    """The functions and methods in a file, each with its statements in a form that names do not change."""
    try:
        tree = ast.parse(source)
        inside = (each for kind in tree.body if isinstance(kind, ast.ClassDef) for each in kind.body)
        functions = [each for each in (*tree.body, *inside) if isinstance(each, ast.FunctionDef)]
        bodies = [(each, each.body[ast.get_docstring(each) is not None :]) for each in functions]
        return [(_write_without_names(each, body), each) for each, body in bodies if len(body) >= FEWEST]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # nor does it run


def _write_without_names(function: ast.FunctionDef, body: list[ast.stmt]) -> str:
    nodes = [node for statement in body for node in ast.walk(statement)]
    own = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    own |= {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    numbers: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in own:
            node.id = numbers.setdefault(node.id, f"{len(numbers)}")
    return "\n".join(map(ast.dump, body))
