"""Find the mistake in the expression that raised: a name that is None, a pair instead of a tensor, a missing key."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from traceback import walk_tb
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from whichline.engine.compare import add_article, listed
from whichline.engine.definitions import Definitions
from whichline.engine.names import compute, find_alike, find_function, get_names, resolve
from whichline.engine.syntax import find_definition, list_own_nodes

MOST_KEYS = 6  # keys that are listed
MOST_TEXT = 60  # characters of an expression in a sentence
LISTS, DICTS = (ast.List, ast.ListComp, ast.BinOp), (ast.Dict, ast.DictComp)
MEMBER = r"^AttributeError: (\w+) has no attribute `(\w+)`"  # torch's words for what a module lacks
ABSTRACT = r"abstract class (\w+) .*abstract methods? '?(\w+)"  # what a class lacks
PAIRS = "torch.return_types"  # the module of what `max` along an axis returns
METHODS = ("method", "builtin_function_or_method")


class Raised:
    """Explains an exception from the expression that raised it; the arguments are those of its report."""

    def __init__(
        self, error: BaseException, text: str, calls: list[TracebackType], definitions: Definitions, node: ast.AST
    ) -> None:
        self._error, self._text, self._calls, self._definitions, self._node = error, text, calls, definitions, node

    def explain(self) -> list[str]:
        """Say in a line or two which mistake it is; nothing if it is not known."""
        for pattern, explain in EXPLAINED:
            match = re.search(pattern, f"{type(self._error).__name__}: {self._text}")
            if match and (said := explain(self, match)):
                return [said]
        return []

    @cached_property
    def _names(self) -> Mapping[str, Any]:
        return get_names(self._calls[-1])

    def _list_values(self) -> Iterator[tuple[ast.expr, Any]]:
        """The names and attributes in the expression, with their values."""
        nodes = [each for each in ast.walk(self._node) if isinstance(each, ast.Name | ast.Attribute)]
        yield from ((each, resolve(each, self._names)) for each in sorted(nodes, key=lambda each: each.col_offset))

    def _describe_origin(self, node: ast.expr) -> str:
        """Say in which line a name got its value; of an argument, which line leaves it out."""
        made = self._definitions.find_origin_of_name(node)
        if made is None or made.value is None:
            return ""
        is_argument = isinstance(made.value, ast.Name) and made.code is not self._calls[-1].tb_frame.f_code
        left_out = self._definitions.describe_left_out(made) if is_argument else ""
        if left_out or (is_argument and isinstance(node, ast.Name)):
            return left_out
        text = ast.unparse(made.value)
        text = text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 2]} …"
        return f" since {self._definitions.place(made.code, made.line)}, `{text}`"

    def explain_none(self, _: re.Match[str]) -> str:
        for node, value in self._list_values():
            if value is None and (since := self._describe_origin(node)):
                return f"`{ast.unparse(node)}` is None{since}"
        if found := self._find_local():
            at, node = found
            name = ast.unparse(node)
            return f"{at} sets a `{name}` of the function's own: without `global {name}` the other one stays None"
        called = self._node.func if isinstance(self._node, ast.Call) else self._node
        return self._definitions.describe_silent(ast.unparse(called))

    def explain_type(self, match: re.Match[str]) -> str:
        """Say which value has the type in the message, and in which line it got it."""
        types = [each.rpartition(".")[2] for each in match.groups() if each]
        for node, value in self._list_values():
            name, text = type(value).__name__, ast.unparse(node)
            if name not in types or isinstance(value, Tensor | str) or value is None:
                continue
            if name in METHODS and node is not getattr(getattr(node, "parent", None), "func", None):
                return f"`{text}` is a method{self._place(value)}: `{text}()` calls it"
            if type(value).__module__ == PAIRS:
                pair = listed(f"`.{each}`" for each in ("values", "indices") if hasattr(value, each))
                return f"`{text}` is a pair{self._describe_origin(node)}: take one of {pair}"
            if "not iterable" in match.string and type(value) is int:
                return f"`{text}` is the number {value}: `range({text})` counts up to it"
            if type(value) in (list, tuple, dict, set) and (since := self._describe_origin(node)):
                return f"`{text}` is {add_article(name)}{since}"
        return ""

    def _place(self, value: Any) -> str:
        """Say where a function of the student's is defined."""
        function = find_function(value)
        is_own = function is not None and self._definitions.is_own(function.__code__.co_filename)
        return f", defined in {self._definitions.place(function.__code__)}" if function and is_own else ""

    def explain_call(self, match: re.Match[str]) -> str:
        """Say which value is called although it is no function."""
        if not isinstance(self._node, ast.Call):
            return ""
        text, kind = ast.unparse(self._node.func), match[1].rpartition(".")[2]
        if kind == "Size":
            return f"`{text}` holds sizes and is not a method: leave out the parentheses"
        kinds = {"int": "a number", "float": "a number", "Tensor": "a tensor", "Parameter": "a tensor"}
        return f"`{text}` is {kinds[kind]}, not a function: is `*`, `@` or another operator missing after it?"

    def explain_key(self, _: re.Match[str]) -> str:
        """Say which key is most like the missing one, and which line stores something there."""
        node, key = self._node, self._error.args[0]
        table = resolve(node.value, self._names) if isinstance(node, ast.Subscript) else None
        if not isinstance(table, Mapping | nn.ModuleDict | nn.ParameterDict) or not isinstance(node, ast.Subscript):
            return ""
        text, keys = ast.unparse(node.value), list(table.keys())
        alike = [one for one in keys if (type(one) is type(key) is tuple and {*one} == {*key}) or str(one) == str(key)]
        if isinstance(key, str) and (name := find_alike(key, [each for each in keys if isinstance(each, str)])):
            alike = [name]
        stored = self._definitions.list_stored(text, self._calls[-1].tb_frame.f_code)
        where = f" {stored[0]} stores it." if len(stored) == 1 else ""
        if len(alike) == 1 and isinstance(alike[0], str) and (place := self._definitions.find_text(alike[0])):
            where = f" {place} gives it."
        if alike:
            return f"`{text}` has the key {alike[0]!r}, but no key {key!r}.{where}"
        if not keys:
            return f"`{text}` is empty{f': {where[1:]}' if where else ''}"
        made = self._definitions.find_global(text) if text not in self._calls[-1].tb_frame.f_locals else ""
        has = f"`{text}` has the key{'s' * (len(keys) > 1)} {listed(map(repr, keys))}{f' since {made}' if made else ''}"
        return has if len(keys) <= MOST_KEYS else ""

    def explain_names(self, match: re.Match[str]) -> str:
        """Say that a name is an attribute of `self`, if `self.` may be missing."""
        name, owner = match[1], self._names.get("self")
        if name == "self":
            return "is `self` missing as the first parameter of this `def`?"
        return f"`self.{name}` exists: is `self.` missing?" if owner is not None and hasattr(owner, name) else ""

    def explain_count(self, _: re.Match[str]) -> str:
        """Say how many values there are to unpack or to index."""
        node = self._node
        if not isinstance(node, ast.Assign | ast.Subscript):
            return ""
        func = node.value.func if isinstance(node.value, ast.Call) else None
        if isinstance(node.value, ast.Call) and isinstance(func, ast.Attribute) and func.attr == "split":
            for size in (compute(each, self._names) for each in node.value.args):
                if type(size) is int:
                    return f"`split({size})` cuts into pieces of size {size}: `chunk({size})` cuts into {size} pieces"
        there = compute(node.value, self._names)
        if not isinstance(there, list | tuple):
            return ""
        if not len(there) and (said := self._explain_no_arguments(node.value)):
            return said
        what = f": {tuple(there)}" if isinstance(there, torch.Size) else ""
        if isinstance(node, ast.Subscript):
            what = f", and the last has the index {len(there) - 1}"
            since = self._describe_origin(node.slice)
            what += f"; `{ast.unparse(node.slice)}` is {resolve(node.slice, self._names)}{since}" if since else ""
        if ast.unparse(node.value).endswith(".saved_tensors"):
            what = self._describe_saved()
        return f"`{ast.unparse(node.value)}` has {len(there)} values{what}"

    def _describe_saved(self) -> str:
        """Say which line saves the tensors that a backward pass reads."""
        code = self._calls[-1].tb_frame.f_code
        kind = getattr(find_definition(code), "parent", ast.Pass())  # executing has put it there
        calls = [each for each in ast.walk(kind) if isinstance(each, ast.Call) and _name(each.func) == SAVE]
        return f": {self._definitions.place(code, calls[0].lineno)} saves them" if len(calls) == 1 else ""

    def _explain_no_arguments(self, node: ast.expr) -> str:
        """Say which line passes all arguments by name to a function that looks for them in `*args`."""
        code = self._calls[-1].tb_frame.f_code
        last = code.co_argcount + code.co_kwonlyargcount
        is_rest = bool(code.co_flags & inspect.CO_VARARGS) and ast.unparse(node) == code.co_varnames[last]
        if not is_rest or len(self._calls) < 2:
            return ""
        caller = self._calls[-2]
        line = self._definitions.place(caller.tb_frame.f_code, caller.tb_lineno)
        return f"`{ast.unparse(node)}` is empty: {line} passes every argument by its name"

    def explain_dtype(self, _: re.Match[str]) -> str:
        """Say which dtype or device is passed to a function of torch's without `dtype=` or `device=`."""
        given = self._node.args if isinstance(self._node, ast.Call) else []
        for node in given[1:]:
            if isinstance(value := resolve(node, self._names), torch.dtype | torch.device):
                name = "dtype" if isinstance(value, torch.dtype) else "device"
                return f"this function takes a {name} only by name: `{name}={ast.unparse(node)}`"
        return ""

    def explain_put(self, _: re.Match[str]) -> str:
        """Say where the tensor was made into which numbers of another dtype are written."""
        if not isinstance(self._node, ast.Subscript):
            return ""
        target = self._node.value
        into = resolve(target, self._names)
        since = self._describe_origin(target) if isinstance(into, Tensor) else ""
        return f"`{ast.unparse(target)}` is {into.dtype}{since}".replace("torch.", "", 1) if since else ""

    def explain_keyword(self, match: re.Match[str]) -> str:
        """Say which parameter is most like an unknown keyword, and which line passes the keyword."""
        name, keyword = match.groups()
        own = [each.args for _, _, each in self._definitions.list_own(ast.FunctionDef) if each.name == name]
        parameters = [each for its in own for each in (*its.args, *its.kwonlyargs)]
        like = find_alike(keyword, [each.arg for each in parameters])
        calls = self._definitions.list_own(ast.Call)
        given = [at for at, _, each in calls if keyword in [one.arg for one in each.keywords]]
        where = f", which {given[0]} passes" if len(given) == 1 else ""
        return f"`{name}` has the parameter `{like}`, but no `{keyword}`{where}" if like else ""

    def explain_recursion(self, _: re.Match[str]) -> str:
        last = [each.tb_frame.f_code for each in self._calls[-8:-1]]
        for trace in self._calls[-8:-1]:
            code = trace.tb_frame.f_code
            if last.count(code) > 1:
                itself = "itself" if len({*last}) == 1 else "what calls it"
                line = self._definitions.place(code, trace.tb_lineno)
                return f"`{code.co_name}` calls {itself} in {line}, again and again: what should end this?"
        return ""

    def _find_module(self, kind: str) -> nn.Module | None:
        """The module of this class in the frame of torch's that raised."""
        frames = [frame for frame, _ in walk_tb(self._error.__traceback__)]
        values = frames[-1].f_locals.values() if frames else ()
        return next((each for each in values if isinstance(each, nn.Module) and type(each).__name__ == kind), None)

    def explain_member(self, match: re.Match[str]) -> str:
        """List the names that a module has, if torch looked for one that is missing."""
        if (module := self._find_module(match[1])) is None:
            return ""
        named = (*module.named_children(), *module.named_parameters(), *module.named_buffers())
        made = [at for at, _, each in self._definitions.list_own(ast.Call) if _name(each.func) == match[1]]
        where = f" in {made[0]}" if len(made) == 1 and type(module).__module__.startswith("torch.") else ""
        names = dict.fromkeys(name.partition(".")[0] for name, _ in named)
        found = self._find_key()
        key = f", and {found[0]} gives the key {found[1].value!r}" if found else ""
        return f"`{match[1]}`{where} has {listed(f'`{name}`' for name in names)}{key}"

    def find_cause(self) -> tuple[str, ast.AST] | None:
        """Find what to mark in place of the line that raised, and its position: a key, a method, what gives a pair."""
        return self._find_key() or self._find_method() or self._find_pair() or self._find_local()

    def _find_local(self) -> tuple[str, ast.Name] | None:
        """Find where a function gives a name of its own a value that was meant for the global one, which is None."""
        code = self._calls[-1].tb_frame.f_code
        here = self._definitions.place(code).rpartition(":")[0]
        named = [each for each, value in self._list_values() if value is None and isinstance(each, ast.Name)]
        wanted = {each.id for each in named} & {*code.co_names}
        for at, _, function in self._definitions.list_own(ast.FunctionDef) if wanted else ():
            own, file = list_own_nodes(function), at.rpartition(":")[0]
            stated = {name for each in own if isinstance(each, ast.Global) for name in each.names}
            sets = [each for each in own if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
            if found := [each for each in sets if file == here and each.id in wanted - stated]:
                return f"{file}:{found[0].lineno}", found[0]
        return None

    def _find_pair(self) -> tuple[str, ast.AST] | None:
        pairs = [node for node, value in self._list_values() if type(value).__module__ == PAIRS]
        made = self._definitions.find_origin_of_name(pairs[0]) if pairs and PAIRS in self._text else None
        return (self._definitions.place(made.code, made.line), made.value) if made and made.value else None

    def _find_method(self) -> tuple[str, ast.AST] | None:
        """Find the method whose name is like that of the abstract one that a class lacks; or the class."""
        if not (match := re.search(ABSTRACT, self._text)):
            return None
        classes = [(at, each) for at, _, each in self._definitions.list_own(ast.ClassDef) if each.name == match[1]]
        methods = self._list_methods(match[1])
        like = find_alike(match[2], [*methods])
        return methods[like] if like else classes[0] if classes else None

    def explain_abstract(self, match: re.Match[str]) -> str:
        """Say which method a class lacks, and which one of its own has a name like it."""
        if not (found := self._find_method()):
            return ""
        at, node = found
        meant = f"; is the `{node.name}` in {at} meant?" if isinstance(node, ast.FunctionDef) else f", in {at}"
        return f"`{match[1]}` has no `{match[2]}`{meant}"

    def _list_methods(self, kind: str) -> dict[str, tuple[str, ast.FunctionDef]]:
        own = self._definitions.list_own(ast.FunctionDef)
        return {each.name: (at, each) for at, holder, each in own if getattr(holder, "name", "") == kind}

    def _find_key(self) -> tuple[str, ast.Constant] | None:
        """Find the one key for a part that a module lacks, and its position."""
        if not (match := re.search(MEMBER, f"{type(self._error).__name__}: {self._text}")):
            return None
        keys = [(at, each) for at, _, each in self._definitions.list_own(ast.Constant)]
        given = [(at, each) for at, each in keys if str(each.value).partition(".")[0] == match[2]]
        given = [(at, each) for at, each in given if self._definitions.is_among_calls(at)] or given
        return given[0] if len({at for at, _ in given}) == 1 else None

    def explain_hidden(self, match: re.Match[str]) -> str:
        """Say which layers a module does not know, since they are in a plain list or dictionary."""
        module = self._find_module(match[1])
        for name, value in vars(module).items() if module is not None else ():
            inner = [*(value.values() if isinstance(value, dict) else value)] if isinstance(value, list | dict) else []
            if inner and not name.startswith("_") and all(isinstance(each, nn.Module) for each in inner):
                kind, home = type(value).__name__, "nn.ModuleDict" if isinstance(value, dict) else "nn.ModuleList"
                made = self._definitions.find_set(module, name)
                where = f" since {self._definitions.place(made.code, made.line)}" if made else ""
                return f"`self.{name}` is a plain {kind}{where}: without {home} its layers are not part of `{match[1]}`"
        return ""

    def explain_buffer(self, match: re.Match[str]) -> str:
        """Say which line makes a buffer part of the state dict."""
        module, name = self._find_module(match[1]), match[2].rpartition(".")[2]
        if module is None or match[2] not in dict(module.named_buffers()):
            return ""
        calls = [(at, each) for at, _, each in self._definitions.list_own(ast.Call) if each.args]
        calls = [(at, each) for at, each in calls if _name(each.func) == "register_buffer"]
        made = [at for at, each in calls if getattr(each.args[0], "value", "") == name]
        where = f" since {made[0]}" if len(made) == 1 else ""
        return f"`{name}` is a buffer{where}: with `persistent=False` it is not part of the state dict"

    def explain_submodule(self, match: re.Match[str]) -> str:
        """Say which line sets a plain list or dictionary of layers, where torch asks for a module."""
        name, is_dict = match[1].rpartition(".")[2], match[2] == "{"
        kind, holder = ("dict", "nn.ModuleDict") if is_dict else ("list", "nn.ModuleList")
        own = self._definitions.list_own(ast.Assign)
        made = [(at, each.value) for at, _, each in own if any(getattr(x, "attr", "") == name for x in each.targets)]
        plain = [(at, value) for at, value in made if isinstance(value, DICTS if is_dict else LISTS)]
        lines = [at for at, _ in plain or made]
        where = f" since {lines[0]}" if len(lines) == 1 else ""
        return f"`self.{name}` is a plain {kind}{where}: without {holder} its layers are no part of the module"

    def explain_forward(self, match: re.Match[str]) -> str:
        """Say where the `forward` of a module is, if it is inside another function or has another name."""
        kind = match[1]
        for at, holder, each in self._definitions.list_own(ast.FunctionDef):
            outer = getattr(holder, "parent", None)
            if each.name == "forward" and isinstance(holder, ast.FunctionDef) and getattr(outer, "name", "") == kind:
                return f"`forward` in {at} is inside `{holder.name}`: is it indented too far?"
        methods = self._list_methods(kind)
        if like := find_alike("forward", [*methods]):
            return f"`{kind}` has no `forward`; is the `{like}` in {methods[like][0]} meant?"
        is_list = kind.startswith("Module")
        return f"`{kind}` holds layers and is not a layer itself: call each of them" if is_list else ""

    def explain_tied(self, _: re.Match[str]) -> str:
        """Say which line puts the same layer into a list several times."""
        own = self._definitions.list_own(ast.BinOp)
        products = [(at, each) for at, _, each in own if isinstance(each.op, ast.Mult)]
        sides = [(at, each, side) for at, each in products for side in (each.left, each.right)]
        lists = [(at, each, side) for at, each, side in sides if isinstance(side, ast.List)]
        found = [(at, each) for at, each, its in lists if len(its.elts) == 1 and isinstance(its.elts[0], ast.Call)]
        if len(found) != 1:
            return ""
        at, product = found[0]
        return f"the list in {at}, `{ast.unparse(product)}`, holds one layer several times instead of several layers"


def _name(node: ast.expr) -> str:
    """The last name of a function."""
    return ast.unparse(node).rpartition(".")[2]


SAVE = "save_for_backward"
TYPE = r"'([\w.]+)'"
EXPLAINED: tuple[tuple[str, Callable[[Raised, re.Match[str]], str]], ...] = (
    (r"NoneType|: None", Raised.explain_none),
    (r"'(int|float|torch\.Size|Tensor|Parameter)' object is not callable", Raised.explain_call),
    (rf"{TYPE} object (?:is not|has no)|operand type\(s\) for .*: {TYPE} and {TYPE}", Raised.explain_type),
    (r"\b(?:not|got) (tuple|list|builtin_function_or_method|method)\b|(torch\.return_types\.\w+)", Raised.explain_type),
    (r"^KeyError", Raised.explain_key),
    (r"source and destination dtypes match", Raised.explain_put),
    (r"^NameError: name '(\w+)'", Raised.explain_names),
    (r"values to unpack|(?:list|tuple) index out of range", Raised.explain_count),
    (r"^TypeError: \w+\(\) (?:takes|received)|must be tuple of ints", Raised.explain_dtype),
    (r"^TypeError: (?:.*\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'", Raised.explain_keyword),
    (ABSTRACT, Raised.explain_abstract),
    (r"^RecursionError", Raised.explain_recursion),
    (r"(?s)loading state_dict for (\w+):.*?Missing key\(s\) in state_dict: \"([\w.]+)\"", Raised.explain_buffer),
    (r"loading state_dict for (\w+)", Raised.explain_hidden),
    (r"submodule `([\w.]+)`: ([\[{])", Raised.explain_submodule),
    (MEMBER, Raised.explain_member),
    (r"Module \[(\w+)\] is missing the required \"forward\"", Raised.explain_forward),
    (r"which are tied", Raised.explain_tied),
)
