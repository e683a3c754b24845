"""Describe an exception in a student's code: the lines that it went through, what it means, and the tensors there."""

import ast
import inspect
import linecache
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from itertools import groupby, islice
from pathlib import Path
from traceback import FrameSummary, format_exception_only, walk_tb
from types import CodeType, TracebackType
from typing import Any, get_args

from torch import Tensor, nn

from whichline.engine import messages
from whichline.engine.assignment import is_own_file
from whichline.engine.compare import listed
from whichline.engine.definitions import Definitions
from whichline.engine.errors import StudentRaised
from whichline.engine.messages import OF_DTYPES, OPERAND_DTYPES, SIZES
from whichline.engine.names import find_alike, find_function, get_names, resolve
from whichline.engine.raised import Raised
from whichline.engine.refusals import describe_refusal
from whichline.engine.syntax import find_definition, find_node, list_assigned

TRANSPOSED = ("T", "mT")  # attributes of a tensor whose shapes are worth showing
FRAMES = 4  # as many outermost and innermost calls are shown: endless recursion has a thousand
FRACTION = re.compile(r"\bfloat\b(?!' object is not callable)|slice indices must be integers")
NUMPY = {"astype": ".to(dtype)", "copy": ".clone()"}  # from a method of an array to the method of a tensor
SHAPES = "Which shapes meet in this line, and which of their axes line up?"


class ExceptionReport:
    """All that is known about an exception. Its properties use the student's objects, which may do anything.

    `called` is the student's function that the test called, if it is known.
    """

    def __init__(self, error: BaseException, root: Path, called: Callable[..., Any] | None = None) -> None:
        self.error, self._root, self._called = error, root, called
        self.kind = error.type if isinstance(error, StudentRaised) else type(error).__name__
        self.text = error.message if isinstance(error, StudentRaised) else str(error)
        if isinstance(error, SyntaxError):  # Python gives the position and the line first, the message last
            *lines, last = format_exception_only(error)
            own = re.compile(rf'  File "{re.escape(str(root))}.(.*)", line (\d+)')
            lines = [last, *(own.sub(r"\1:\2", line) for line in lines)]
        else:
            lines = [f"{self.kind}: {self.text}" if self.text else self.kind]
        self.headline, *self.rest = "".join(lines).strip().splitlines()

    @cached_property
    def calls(self) -> list[TracebackType]:
        """The calls in the student's files that the error went through, the innermost last."""
        return list_calls(self.error, partial(is_own_file, root=self._root))

    @cached_property
    def frames(self) -> list[FrameSummary]:
        """The same calls, with files relative to the root, methods with their class, and columns in bytes."""
        return list(self.error.frames) if isinstance(self.error, StudentRaised) else [*map(self._sum_up, self.calls)]

    def _sum_up(self, trace: TracebackType) -> FrameSummary:
        code = trace.tb_frame.f_code
        line = linecache.getline(code.co_filename, trace.tb_lineno)
        _, last, start, end = next(islice(code.co_positions(), trace.tb_lasti // 2, None))
        name, number = Path(code.co_filename).relative_to(self._root).as_posix(), trace.tb_lineno
        return FrameSummary(name, number, code.co_qualname, line=line, end_lineno=last, colno=start, end_colno=end)

    @cached_property
    def node(self) -> ast.AST | None:
        """The expression that raised; the statement, if it is the assignment itself that raised."""
        return find_node(self.calls[-1]) if self.calls else None

    @cached_property
    def meaning(self) -> list[str]:
        """What the error means, in a few lines; nothing if its own message is clear enough."""
        for explain in (lambda: self.mistake, lambda: self.typed[1:], self._explain_object, self._explain_message):
            with suppress(Exception):
                if said := explain():
                    return said
        return []

    @cached_property
    def mistake(self) -> list[str]:
        """The mistake in a line or two, if it can be seen in the functions or in the expression that raised."""
        if code := self.forgotten:
            return [self._definitions.describe_forgotten(code)]
        said = self._definitions.compare_call(self.text) or self._definitions.find_swap()
        if self.kind == "TypeError" and FRACTION.search(self.text):
            said = said or self._definitions.find_fraction()
        if self.node and (not said or "unexpected keyword" in self.text):
            said += self._raised.explain()
        return said

    @property
    def cause(self) -> tuple[str, ast.AST] | None:
        """What to mark in place of the line that raised, and its position, if the error shows it."""
        with suppress(Exception):
            return self._raised.find_cause()
        return None

    @property
    def is_explained(self) -> bool:
        """Tell whether the code alone shows the mistake."""
        with suppress(Exception):
            return bool(self.mistake)
        return False

    @cached_property
    def forgotten(self) -> CodeType | None:
        """The function without a `return`, if that is why the output, or a value in the line that raised, is None."""
        is_answer = "None (is a" in "".join(self.typed) or self.text.startswith("the answer is None")
        with suppress(Exception):
            if is_answer or "NoneType" in self.text:
                return self._definitions.find_forgotten(is_answer)
        return None

    @property
    def _raised(self) -> Raised:
        return Raised(self.error, self.text, self.calls, self._definitions, self.node or ast.Pass())

    @cached_property
    def _definitions(self) -> Definitions:
        return Definitions(self.calls, self._root, self._called)

    @property
    def called_code(self) -> CodeType | None:
        """The code of the function that the test called."""
        return getattr(inspect.unwrap(self._called), "__code__", None) if self._called else None

    @cached_property
    def typed(self) -> list[str]:
        """The value that contradicts its annotation, in words."""
        return messages.explain_annotation(self.text) if self.kind == "TypeCheckError" else []

    def _explain_message(self) -> list[str]:
        advice = messages.shorten(self.headline)[1]
        last = [self.rest[-1].strip()] if self.kind == "EinopsError" and self.rest else []
        said = [*map(self._add_place, messages.explain_message(self.kind, self.text))]
        pattern = messages.explain_pattern(self.error)
        return [*pattern, *self._place_pattern()] if pattern else said or [advice] * bool(advice) or last

    def _place_pattern(self) -> Iterator[str]:
        """Say where a pattern stands that has a name."""
        names = [each for each in ast.walk(self.node or ast.Pass()) if isinstance(each, ast.Name | ast.Attribute)]
        for each in names if self.calls else ():
            text = resolve(each, get_names(self.calls[-1]))
            if isinstance(text, str) and "->" in text and (place := self._definitions.find_text(text)):
                yield f"`{ast.unparse(each)}` stands in {place}"

    def _add_place(self, line: str) -> str:
        """Add where the key stands that the adapter gave, or where the constructor begins that sets up no module."""
        code = self.calls[-1].tb_frame.f_code if self.calls else None
        if line.endswith("the first line of its __init__?") and code and (its := find_definition(code)):
            return f"{line} It begins in line {its.body[0].lineno}" if its.name == "__init__" else line
        if not (key := re.fullmatch(r'  the adapter gave "([^"]*)"', line)):
            return line
        constants = (each for each in ast.walk(self.node or ast.Pass()) if isinstance(each, ast.Constant))
        own = [self._definitions.place(code, each.lineno) for each in constants if code and each.value == key[1]]
        place = own[0] if own else self._definitions.find_text(key[1])
        return f"{line}, in {place}" if place else line

    def _explain_object(self) -> list[str]:
        """Say which name of an object, of a line or of a module is most like the missing one."""
        error = self.error
        if isinstance(error, AttributeError) and error.name is not None:
            return self._explain_attribute(error.name, error.obj)
        unbound = re.search(r"variable '(\w+)'", self.text)
        if isinstance(error, UnboundLocalError) and unbound and self.calls:
            name = unbound[1]
            lines = [each.line for each in list_assigned(self.calls[-1].tb_frame.f_code, name)]
            where = f"line{'s' * (len(lines) > 1)} {listed(map(str, lines))}"
            return [f"`{name}` gets a value in {where} alone, which did not run before"] * bool(lines)
        name, names, where = "", (), ""
        if isinstance(error, NameError) and self.calls and error.name not in messages.IMPORTS:
            frame = self.calls[-1].tb_frame
            name, names, where = error.name, [*frame.f_locals, *frame.f_globals], "there is"
        elif isinstance(error, ImportError) and error.name in sys.modules:
            name = self.text.partition("cannot import name '")[2].partition("'")[0]
            names, where = dir(sys.modules[error.name]), f"`{error.name}` has"
        if isinstance(error, NameError) and name and (line := self._definitions.find_import(name)):
            return [line]
        if isinstance(error, NameError) and name and (place := self._definitions.find_own(name)):
            return [f"{place} defines `{name}`: is an import missing?"]
        like = find_alike(name, names) if name else None
        return [f"{where} no `{name}`; did you mean `{like}`?"] if like else []

    def _explain_attribute(self, name: str, owner: Any) -> list[str]:
        if owner is None:
            why = "is a `return` missing, or is it an argument that may be None?"
            return [f"got None where something with `{name}` was expected: {why}"]
        if inside := self._explain_property(name, owner):
            return inside
        what = f"`{getattr(owner, '__name__', type(owner).__name__)}` has no `{name}`"
        if line := self._definitions.find_unkept(owner, name):
            return [f"{what}: `__init__` computes `{name}` in {line}, and does not keep it on `self`"]
        if said := self._definitions.describe_uncalled(owner, name):
            return [what, said]
        made = self._definitions.find_set(owner, name)
        running = [each.tb_lineno for each in self.calls if made and each.tb_frame.f_code is made.code]
        if made and any(line < made.line for line in running):
            place = self._definitions.place(made.code, made.line)
            return [what, f"{place} sets it, and line {running[0]} runs before that"]
        if isinstance(owner, Tensor) and name in NUMPY:
            return [f"{what}, which arrays of NumPy have; a tensor has `{NUMPY[name]}`"]
        if isinstance(owner, nn.Module) and "_parameters" not in vars(owner):
            asked = f"{what}, as it is not set up: is `super().__init__()` the first line of its __init__?"
            function = find_function(type(owner))
            body = getattr(find_definition(function.__code__), "body", ()) if function else ()
            where = self._definitions.place(function.__code__, body[0].lineno) if function and body else ""
            return [f"{asked} It begins in {where}" if where else asked]
        own = [each for each in getattr(owner, "__dict__", ()) if not each.startswith("_") and each != "training"]
        kinds = ("_parameters", "_modules", "_buffers") if isinstance(owner, nn.Module) else ()
        own = [*(each for kind in kinds for each in vars(owner).get(kind, ())), *own]
        if like := find_alike(name, own) or find_alike(name, dir(owner)):
            made = self._definitions.find_set(owner, like) if like in own else None
            place = self._definitions.place(made.code, made.line) if made else self._definitions.find_stored(like)
            place = place or self._definitions.find_text(like)  # of a buffer
            where = f", which {place} sets" if place else ""
            return [f"{what}; did you mean `{like}`{where}?"]
        has = f"; it has {', '.join(own)}" if own else ""
        return [f"{what}{has}", *["check its spelling, and whether __init__ sets it"] * bool(kinds)]

    def _explain_property(self, name: str, owner: Any) -> list[str]:
        """Say which attribute a property looks for, where a module hides that error behind another one."""
        its = inspect.getattr_static(type(owner), name, None)
        if not isinstance(its, property) or not its.fget:
            return []
        try:
            its.fget(owner)
        except AttributeError as error:
            where = self._definitions.place(its.fget.__code__, its.fget.__code__.co_firstlineno)
            inner = self._explain_attribute(error.name or "", error.obj) if error.name != name else []
            return [f"`{name}` is a property, in {where}", *inner]
        return []

    def find_backward(self, kind: str) -> tuple[str, int, str] | None:
        """Find the last line of the `backward` of a class, if there is one: its file, number and function."""
        for at, holder, each in self._definitions.list_own(ast.FunctionDef):
            if each.name == "backward" and isinstance(holder, ast.ClassDef) and holder.name == kind:
                return str(self._root / at.rpartition(":")[0]), each.body[-1].lineno, f"{kind}.backward"
        return None

    @cached_property
    def sentences(self) -> list[str]:
        """The message in one line, and then its meaning, in sentences."""
        if refusal := self.refusal:
            return [refusal]
        message = messages.shorten(self.typed[0] if self.typed else self.headline)[0].removeprefix("WrongAnswer: ")
        if self.kind == "EinopsError":
            message = "EinopsError: the pattern does not fit."
        message = message.replace("the answer is None", "The answer is None", 1)
        return [message, *map(_as_sentence, self.meaning)]

    @property
    def refusal(self) -> str:
        """Say what grading refuses to do, and in which line; "" if the error is no refusal."""
        refusal = describe_refusal(self.text) if self.frames else ""
        return f"{self.frames[-1].filename}:{self.frames[-1].lineno} {refusal}" if refusal else ""

    def ask(self, line: str, by_condition: str) -> str:
        """A question about the error in a line of code; `by_condition` if the error has none of its own."""
        if self.refusal:
            return ""
        if self.forgotten:
            return "What should this function give back, and in which line?"
        if re.match(r"\s*(raise|assert)\b", line):
            return "What does this check refuse, and does the handout allow this call?"
        if self.typed and self.mistake:  # about arguments, and not about the annotation
            return by_condition
        if (question := messages.ask_about(self.kind, self.text)) is not None:
            return question
        of_text = OPERAND_DTYPES if OF_DTYPES.search(self.text) else SHAPES if re.search(SIZES, self.text) else ""
        return by_condition or of_text or ("" if self.meaning else "What does this line take for granted?")

    @property
    def first(self) -> str:
        """The headline."""
        return self.refusal or (self.typed[0] if self.typed else self.headline)

    @property
    def full(self) -> tuple[str, list[str]]:
        """The headline; and its meaning, or else the rest of the message, with the student's lines."""
        details = [f"{self.kind}: {self.text}"] if self.refusal else self.meaning or self.rest * (not self.typed)
        calls = list(_describe_calls(self.frames))
        if (left_out := len(calls) - 2 * FRAMES) > 0:
            calls[FRAMES:-FRAMES] = [[f"... {left_out} more calls"]]
        return self.first, [*details, *(line for lines in calls for line in lines), *self.operands]

    @cached_property
    def operands(self) -> list[str]:
        """The shapes of the tensors in the expression that raised, and the names of the axes with these sizes."""
        with suppress(Exception):
            return [f"    {line}" for line in self._list_operands()]
        return []

    def _list_operands(self) -> list[str]:
        tensors = dict(self.list_tensors())
        if not tensors:
            return []
        differ = len({x.dtype for x in tensors.values() if x.is_floating_point()}) > 1 or OF_DTYPES.search(self.text)
        shapes = {name: tuple(x.shape) for name, x in tensors.items()}
        names = self._list_axes()
        sizes = sorted({size for shape in shapes.values() for size in shape} & names.keys())
        devices = len({x.device for x in tensors.values()}) > 1
        dtypes = {name: f" {x.dtype}".replace("torch.", "") if differ else "" for name, x in tensors.items()}
        dtypes |= {name: f" on {x.device}" for name, x in tensors.items() if devices}
        there = "here " + ", ".join(f"{name} is {shape}{dtypes[name]}" for name, shape in shapes.items())
        return [there, *[", ".join(f"{size} = {' or '.join(names[size])}" for size in sizes)] * bool(sizes)]

    def list_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that the expression names, such as `K` or `self.weight`."""
        if not self.node or not self.calls:
            return
        names, weights = self.calls[-1].tb_frame.f_locals, self._list_weights()
        nodes = [node for node in ast.walk(self.node) if isinstance(node, ast.Name | ast.Attribute)]
        for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
            if isinstance(node, ast.Name):
                name, value = node.id, names.get(node.id)
            elif isinstance(node.value, ast.Name):
                name, owner = f"{node.value.id}.{node.attr}", names.get(node.value.id)
                is_view = isinstance(owner, Tensor) and node.attr not in TRANSPOSED
                its = None if is_view else getattr(owner, node.attr, None)
                value = weights.get((id(owner), node.attr), its)
            else:
                continue
            if isinstance(value, Tensor):
                yield name, value

    def _list_weights(self) -> dict[tuple[int, str], Tensor]:
        """The weights that `functional_call` lent to modules, by the module's id and the attribute.

        By now the modules have their own weights back.
        """
        weights = {}
        for frame, _ in walk_tb(self.calls[0]):
            if frame.f_code.co_name == "_functional_call":
                module, given = frame.f_locals["module"], frame.f_locals["parameters_and_buffers"]
                for name, x in given.items():
                    owner, _, attribute = name.rpartition(".")
                    weights[id(module.get_submodule(owner)), attribute] = x
        return weights

    def _list_axes(self) -> dict[int, list[str]]:
        """For each size in the test case, the axes that have it, with their names in the adapter's annotations."""
        names: defaultdict[int, list[str]] = defaultdict(list)
        frame = self.calls[0].tb_frame
        for argument, annotation in getattr(frame.f_globals.get(frame.f_code.co_name), "__annotations__", {}).items():
            shape = getattr(frame.f_locals.get(argument), "shape", ())
            for each in (annotation, *get_args(annotation)):
                axes = str(getattr(each, "dim_str", "")).split()
                for axis, size in zip(reversed(axes), reversed(shape), strict=False):
                    if axis == "...":
                        break
                    if not axis.startswith("#") and axis not in names[size]:
                        names[size].append(axis)
        return dict(names)


def list_calls(error: BaseException | None, is_own: Callable[[str], bool]) -> list[TracebackType]:
    """The calls that an error went through in files that are `is_own`, the innermost last."""
    found, trace = [], error.__traceback__ if error else None
    is_own = cache(is_own)  # a recursion has a thousand calls
    while trace:
        found += [trace] * is_own(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return found


def _describe_calls(frames: Sequence[FrameSummary]) -> Iterator[list[str]]:
    """The lines for each call; a call that repeats, as in endless recursion, is shown once."""
    for place, same in groupby(frames, lambda frame: (frame.filename, frame.lineno, frame.name, frame.line)):
        file, number, name, line = place
        yield [f"{file}:{number}, in {name}", f"    {line}"]
        if (more := len(list(same)) - 1) > 1:
            yield [f"... and {more} more times: what should end this recursion?"]


def _as_sentence(line: str) -> str:
    begins = line if re.match(r"[\w/]+\.py", line) else line[:1].upper() + line[1:]
    return begins if begins.endswith(("?", ".", ":")) or line.startswith(" ") else f"{begins}."
