"""What a crash shows of the mistake: small programs as students write them, and the sentence with cause and line."""

import pytest

from staff.tests.locate.conftest import ATTENTION, HEADS, LINEAR, ROPE, SOFTMAX, Explain, above

Edits = list[tuple[str, str]]
MAKES = "def run_linear(d_in, d_out, weights, in_features):\n"
FUNCTOOLS, ANSWER = ("import math\n", "import functools\nimport math\n"), "    return in_features @ weights.T\n"
USE = "    layer = Layer(d_in, d_out)\n    return torch.func.functional_call(layer, {'weight': weights}, in_features)\n"
LAYER = """class Layer(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(d_out, d_in))

    def forward(self, x):
        return x @ self.weight.T"""
LOAD = "    layer = Layer(d_in, d_out)\n    layer.load_state_dict({})\n    return layer(in_features)\n"
LOADS = LOAD.format("{'weight': weights}")
OUTER = "    outer = torch.nn.Module()\n    outer.parts = "
LENT = "    return torch.func.functional_call(outer, {{'{}.weight': weights}}, in_features)\n"
SETS, GIVES, MAKE = "        self.weight = ", "        return x @ self.weight.T", "Layer(d_in, d_out)"
PARAMETER = "        self.weight = torch.nn.Parameter(torch.ones(d_out, d_in))\n"
LARGEST = "largest = x.amax(dim, keepdim=True)\n    largest = torch.where(largest == -math.inf, 0.0, largest)"
WIDE = "    wide = torch.promote_types(Q.dtype, torch.float32)\n    weights"
AGAIN = "    if x.dtype != torch.float64:\n        return run_softmax(x.float(), dim)\n    largest = x.amax"
LENGTH, MERGE = "    length = x.shape[-2]\n", 'rearrange(heads, "... h n d -> ... n (h d)")'
CAUSAL, SCORES = "torch.ones(length, length, dtype=torch.bool).tril()", "    return scores\n"
TABLES = "TABLES = {}\n\n\ndef keep(d, theta, longest):\n    TABLES[(theta, d, longest)] = Rotation(d, theta, longest)"
TURN = "    return Rotation(d_k, theta, max_seq_len)(in"
BY_POSITION = "def in_rows(*args, **kwargs):\n    in_features, dim = args[0], kwargs['dim']"
SAVES = """class Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad"""
EARLY = """class Early:
    def __init__(self):
        self.scale = self.ask()
        self.depth = 2

    def ask(self):
        return self.depth"""
INHERITS = """class Base:
    def __init__(self):
        self.scale = 2

class Own(Base):
    def __init__(self, size):
        self.size = size

    def ask(self):
        return self.scale"""
METHOD = """class Rows:
    def rows(self):
        return 2

    def twice(self):
        return self.rows * 2"""
HANDED = """def handed(x):
    return x.contiguous()


def hide(x, where):
    return torch.where(where, x, -math.inf)"""
SAME = """class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad"""
POWER = "\ndef power(x):\n    return torch.exp(x)"
NAMED = "def named(name):\n    def keep(function):\n        function.name = name\n\n    return keep"
ONE_OF, FOR_EACH = ": take one of `.values` and `.indices`.", "return a gradient, or None, for each"
CONTEXT = "class Wide:\n    def __enter__(self):\n        self.keep = True\n\n    def __exit__(self, *_):\n        pass"
ATTEND = "def attend(q, k, values, mask=None):\n    return run_softmax(scores_of(q, k, mask), -1) @ values"
LACKS = f"    heads = attend(q, k, mask)\n            {'^' * 18}\nWith one more argument here, all 23 failing"
OWN_NAME = "adapters.py:22 sets a `SCALE` of the function's own: without `global SCALE` the other one stays None."
NONE = "is None, since its decorator gives nothing back"
OF_INIT = "of `def __init__(self, d_in, d_out)` in adapters.py:33."
TABLE, GIVEN = "self.cos[positions].to(x.dtype)", "torch.func.functional_call(layers, given, in_features"
ABSTRACT = """class Base(abc.ABC):
    @abc.abstractmethod
    def apply(self, x): ...


class Own(Base):
    def aply(self, x):
        return x"""
NO_RETURN = "has no `return`, so it gives None."
FRACTION = "not a whole number: `/` gives a fraction, `//` does not."
TRUTH = "A condition needs one truth value: `is None` asks whether there is a tensor; `&` and `|` join masks."
IN_PLACE = "Autograd tracks this tensor: make a new one, or use `torch.no_grad()` to set the numbers of a parameter."
SET = "A module's parameter can only be set to a Parameter; `functional_call` sets it to a tensor for one call."
ONE_NUMBER = "This function takes one number, but the tensor has several; use a function of torch, such as `torch.exp`."
ONE_LAYER = "holds one layer several times instead of several layers"
FRACTIONS = "torch.arange(in_features.shape[-2], dtype=in_features.dtype)"


def layer(old: str, new: str, use: str = USE) -> Edits:
    """A linear layer as a module with a mistake, or with one in its use."""
    assert old in LAYER + use
    return [above(MAKES, LAYER.replace(old, new)), (ANSWER, use.replace(old, new))]


CAUSES: dict[str, tuple[tuple[str, ...], ...]] = {
    "a pair that goes to another function": (
        (SOFTMAX, f"`largest` is a pair since adapters.py:11, `torch.max(x, dim, keepdim=True)`{ONE_OF}", "max(x"),
        (LARGEST, "largest = torch.max(x, dim, keepdim=True)\n    largest = torch.clamp(largest, min=-1e30)"),
    ),
    "a decorator without a return": (
        (SOFTMAX, f"`power` in adapters.py:15 {NONE}: `keep`, in adapters.py:9, has no `return`."),
        above("def run_softmax", f"def keep(f):\n    def call(x):\n        return f(x)\n\n\n@keep{POWER}"),
        ("torch.exp(x - largest)", "power(x - largest)"),
    ),
    "a decorator with arguments, and no return inside": (
        (SOFTMAX, f"`power` in adapters.py:17 {NONE}: `keep`, inside `named`, in adapters.py:10, has no `return`."),
        above("def run_softmax", f"{NAMED}\n\n\n@named('power'){POWER}"),
        ("torch.exp(x - largest)", "power(x - largest)"),
    ),
    "a partial whose argument takes the place of another": (
        (LINEAR, "`use` is a partial of `multiply`, made in adapters.py:38: what it holds goes to `weight`."),
        FUNCTOOLS,
        above(MAKES, "def multiply(weight, x):\n    return torch.einsum('...i,oi->...o', x, weight)"),
        (ANSWER, "    use = functools.partial(multiply, in_features)\n    return use(weights)\n"),
    ),
    "a shape that another line reads": (
        (HEADS, "`gain` is (99, 3) since line 57, `torch.ones(99, 3)`."),
        (LENGTH, f"{LENGTH}    rows = torch.ones(99, 3)\n    gain = torch.zeros(rows.shape)\n    x = x + gain\n"),
    ),
    "a function that defines another one and does not return it": (
        (SOFTMAX, "`make` in adapters.py:9 defines `power`, and has no `return`."),
        above("def run_softmax", "def make():\n    def power(x):\n        return torch.exp(x)"),
        ("    e = torch.exp(x - largest)", "    e = apply(x - largest, **dict(power=make()))"),
        above("def run_softmax", "def apply(x, power):\n    return power(x)"),
    ),
    "what gives None, kept in an attribute": (
        (LINEAR, "`self.b` is None since adapters.py:38, `self.register_buffer('b', x)`."),
        *layer(GIVES, "        self.b = self.register_buffer('b', x)\n        return x @ self.weight.T + self.b[0]"),
    ),
    "what gives None, kept in a name": (
        (HEADS, "`parts` is None since adapters.py:59, `parts.append(w)`."),
        (LENGTH, f"{LENGTH}    parts = []\n    for w in weights:\n        parts = parts.append(w)\n"),
    ),
    "a function that returns in one branch alone": (
        (SOFTMAX, "`widen` in adapters.py:9 has a `return` only in line 11, and returns None if that does not run."),
        above("def run_softmax", "def widen(x):\n    if x.dtype == torch.float16:\n        return x.float()"),
        ("x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))", "x = widen(in_features)"),
    ),
    "one layer several times": (
        (LINEAR, f"The list in adapters.py:42, `[Layer(d_in, d_out)] * 3`, {ONE_LAYER}.", GIVEN),
        *layer(
            USE,
            "    layers = torch.nn.ModuleList([Layer(d_in, d_out)] * 3)\n"
            "    given = {f'{i}.weight': weights for i in range(3)} | {'0.weight': weights + 1}\n"
            "    return torch.func.functional_call(layers, given, in_features)\n",
        ),
    ),
    "a mask of fractions that is inverted": (
        (HEADS, "`mask` is float32 since line 60, `torch.ones(length, length)`."),
        (CAUSAL, "torch.ones(length, length).tril()"),
    ),
    "a mask of fractions that is inverted on the left": (
        (HEADS, "`mask` is float32 since line 60, `torch.ones(length, length).tril()`."),
        (CAUSAL, "torch.ones(length, length).tril()\n    torch.zeros(length, length)[~mask] = -math.inf"),
    ),
    "a tensor that is too small for what is put into it": (
        (HEADS, "`rows` is (7, 99) since line 57, `torch.zeros(7, 99)`."),
        (LENGTH, f"{LENGTH}    rows = torch.zeros(7, 99)\n    rows[..., :98] = weights[0][:, :1]\n"),
    ),
    "a shape that is asserted": (
        (HEADS, "`gain` is (3,) since line 57, `torch.ones(3)`."),
        (LENGTH, f"{LENGTH}    gain = torch.ones(3)\n    assert gain.shape == x.shape\n"),
    ),
    "a mask of fractions that is joined": (
        (HEADS, "`mask` is float32 since line 60, `torch.ones(length, length)`."),
        (CAUSAL, "torch.ones(length, length).tril()\n    mask = mask & mask"),
    ),
    "a dtype that goes through several lines": (
        (HEADS, "`weights` is float64 since line 45, `torch.empty(x.shape, dtype=torch.float64)`."),
        ("turned = torch.empty_like(x)", "turned = torch.empty(x.shape, dtype=torch.float64)"),
        ("weights @ V.to(wide)", "weights @ V"),
        ("wide = torch.promote_types(Q.dtype, torch.float32)\n    weights", "wide = Q.dtype\n    weights"),
    ),
    "positions that are fractions": (
        (HEADS, f"`positions` is float32 since line 84, `{FRACTIONS}`."),
        ("torch.arange(in_features.shape[-2]) if", f"{FRACTIONS} if"),
    ),
    "a keyword that another line binds": (
        (LINEAR, "`multiply` has the parameter `weight`, but no `weights`, which adapters.py:38 passes."),
        FUNCTOOLS,
        above(MAKES, "def multiply(x, weight):\n    return x @ weight.T"),
        (ANSWER, "    use = functools.partial(multiply, weights=weights)\n    return use(in_features)\n"),
    ),
    "layers in a plain list": (
        (LINEAR, "`self.parts` is a plain list: without nn.ModuleList its layers are not part of `Module`."),
        *layer(
            USE,
            "    outer = torch.nn.Module()\n    outer.parts = [Layer(d_in, d_out)]\n"
            "    outer.load_state_dict({'parts.0.weight': weights})\n    return outer.parts[0](in_features)\n",
        ),
    ),
    "layers in a plain list of a class": (
        (LINEAR, "a plain list since adapters.py:36: without nn.ModuleList its layers are not part of `Layer`."),
        *layer(
            PARAMETER,
            f"{PARAMETER}        self.parts = [torch.nn.Linear(d_in, d_out)]\n",
            LOAD.format("{'weight': weights, 'parts.0.weight': weights}"),
        ),
    ),
    "a buffer that is part of the state dict": (
        (LINEAR, "`mask` is a buffer since adapters.py:36: with `persistent=False` it is not part of the state dict."),
        *layer(PARAMETER, f"{PARAMETER}        self.register_buffer('mask', torch.ones(3))\n", LOADS),
    ),
    "a module that is not set up, and fails later": (
        (LINEAR, "is `super().__init__()` the first line of its __init__? It begins in adapters.py:34."),
        *layer(f"        super().__init__()\n{PARAMETER}", "        self.n = 0\n", f"    {MAKE}.train()\n{ANSWER}"),
    ),
    "a setting that nobody passes": (
        (LINEAR, "`config.rows` is None: adapters.py:38 makes a `Config` without `rows`."),
        above(MAKES, "class Config:\n    def __init__(self, width, rows=None):\n        self.rows = rows"),
        (ANSWER, f"    config = Config(d_in)\n    torch.arange(config.rows)\n{ANSWER}"),
    ),
    "a setting of a dataclass that nobody passes": (
        (LINEAR, "`config.rows` is None: adapters.py:39 makes a `Config` without `rows`."),
        ("import math\n", "import math\nfrom dataclasses import dataclass\n"),
        above(MAKES, "@dataclass\nclass Config:\n    rows: int | None = None"),
        (ANSWER, f"    config = Config()\n    torch.arange(config.rows)\n{ANSWER}"),
    ),
    "numbers of another dtype than those that they replace": (
        (SOFTMAX, "`kept` is float32 since adapters.py:13, `torch.zeros(x.shape)`."),
        ("    e = torch", "    kept = torch.zeros(x.shape)\n    kept[x < 9] = x[x < 9]\n    e = torch"),
    ),
    "a name that is not imported": (
        (HEADS, "adapters.py:4 imports from `functools`, which has `partial`."),
        ("import math\n", "import math\nfrom functools import wraps\n"),
        (LENGTH, f"{LENGTH}    partial(len)\n"),
    ),
    "a number where positions belong": (
        (ROPE, "passes `positions` for `theta` of `def turn(x, theta, positions)` in adapters.py:51."),
        above("def run_rope", "def turn(x, theta, positions):\n    return x * positions[..., None] / theta"),
        (TURN, "    positions = token_positions\n    return turn(in_query_or_key, positions, theta).sum(in"),
    ),
    "a table that a constructor does not keep": (
        (ROPE, "`Rotation` has no `cos`: `__init__` computes `cos` in adapters.py:40, and does not keep it on `self`."),
        ("self.cos, self.sin = angles.cos(), angles.sin()", "cos, self.sin = angles.cos(), angles.sin()"),
    ),
    "a property of what nothing sets": (
        (LINEAR, "`Layer` has no `wieght`; did you mean `weight`, which adapters.py:35 sets?"),
        *layer(GIVES, "        return x @ self.mT\n\n    @property\n    def mT(self):\n        return self.wieght.T"),
    ),
    "a module that a dictionary lacks": (
        (LINEAR, "`ModuleDict` in adapters.py:42 has `one`, and adapters.py:43 gives the key 'two.weight'."),
        *layer(USE, "    outer = torch.nn.ModuleDict({'one': Layer(d_in, d_out)})\n" + LENT.format("two")),
    ),
    "layers in a plain list, to which weights are lent": (
        (LINEAR, "since adapters.py:43: without nn.ModuleList its layers are no part of the module."),
        *layer(USE, f"{OUTER}[Layer(d_in, d_out)]\n" + LENT.format("parts.0")),
    ),
    "layers in a plain dictionary, to which weights are lent": (
        (LINEAR, "a plain dict since adapters.py:43: without nn.ModuleDict its layers are no part of the module."),
        *layer(USE, OUTER + "{'one': Layer(d_in, d_out)}\n" + LENT.format("parts.one")),
    ),
    "an argument that a partial does not pass": (
        (LINEAR, "in adapters.py:33, and `use` is a partial of it since line 38."),
        FUNCTOOLS,
        above(MAKES, "def multiply(weight, x, scale):\n    return x @ weight.T * scale"),
        (ANSWER, "    use = functools.partial(multiply, scale=1)\n    return use(in_features)\n"),
    ),
    "a method without a return, of an object that its answer replaces": (
        (ROPE, f"`Rotation.longer` in adapters.py:50 {NO_RETURN}"),
        ("        return turned\n", "        return turned\n\n    def longer(self):\n        Rotation(14, 1e4, 99)\n"),
        (
            TURN,
            "    turn = Rotation(d_k, theta, max_seq_len)\n    turn = turn if turn is None else turn.longer()\n"
            "    return turn.cos.sum(in",
        ),
    ),
    "a key in another order": (
        (ROPE, "`TABLES` has the key (10000.0, 14, 1000), but no key (14, 10000.0, 1000). adapters.py:40 stores it."),
        above("class Rotation:", TABLES),
        (TURN, "    keep(d_k, theta, max_seq_len)\n    return TABLES[d_k, theta, max_seq_len](in"),
    ),
    "a key of weights that another adapter gives, too": (
        (HEADS, '  the adapter gave "wieght", in adapters.py:59'),
        (
            LENGTH,
            "    layer = torch.nn.Linear(1, 1, bias=False)\n    {'wieght': layer}\n"
            "    layer.load_state_dict(\n        {'wieght': layer.weight}\n    )\n    length = x.shape[-2]\n",
        ),
    ),
    "a key that is misspelt": (
        (HEADS, "`kept` has the key 'length', but no key 'lenght'. adapters.py:56 gives it."),
        (LENGTH, "    kept = {'length': x.shape[-2]}\n    length = kept['lenght']\n"),
    ),
    "a key that another line gives": (
        (HEADS, "`kept` has the key 'length', but no key 'lengths'. adapters.py:60 gives it."),
        (LENGTH, "    kept = dict([keep('length', x.shape[-2])])\n    length = kept['lengths']\n"),
        above("class Rotation:", "def keep(name, value):\n    return name, value"),
    ),
    "a key that is not there": (
        (HEADS, "`kept` has the keys 'q' and 'k'."),
        (LENGTH, "    kept = {'q': 1, 'k': 2}\n    length = kept['output']\n"),
    ),
    "two arguments of a constructor exchanged": (
        (HEADS, "adapters.py:83 passes `theta` for `d` of `def __init__(self, d, theta, longest)` in adapters.py:37."),
        ("Rotation(d_model // num_heads, theta, max_seq_len)", "Rotation(theta, d_model // num_heads, max_seq_len)"),
    ),
    "a table that is too short": (
        (ROPE, "The size 10 comes from line 39, `longest - 1`."),
        ("angles = torch.arange(longest, ", "rows = torch.arange(longest - 1, "),
        ("[:, None] * freq", "\n        angles = rows[:, None] * freq"),
    ),
    "a table that gets a length that is too short": (
        (ROPE, "The size 10 comes from line 52, `max_seq_len - 1`."),
        (TURN, "    return Rotation(d_k, theta, max_seq_len - 1)(in"),
    ),
    "a table that is too short, and is read at a number, too": (
        (ROPE, "The size 10 comes from line 53, `max_seq_len - 1`."),
        (TURN, "    return Rotation(d_k, theta, max_seq_len - 1)(in"),
        ("        cos, sin = self.cos[positions]", "        start = 0\n        cos, sin = self.cos[positions, start:]"),
    ),
    "heads that are not joined before a function that was called before": (
        (HEADS, "since line 66, `heads.transpose(-3, -2)`."),
        above("def attend_by_heads", "def project(each, w):\n    return each @ w.T"),
        ("x @ w.T, ", "project(x, w), "),
        (f"    return {MERGE} @ weights[3].T", "    y = heads.transpose(-3, -2)\n    return project(y, weights[3])"),
    ),
    "an axis that positions get in the wrong place": (
        (HEADS, "since line 85, `positions.unsqueeze(0)`."),
        ("positions.unsqueeze(-2) if", "positions.unsqueeze(0) if"),
    ),
    "a view of what was transposed before": (
        (HEADS, "`turned` is not contiguous since line 62, `heads.transpose(-3, -2)`."),
        (f"    return {MERGE}", "    turned = heads.transpose(-3, -2)\n    return turned.view(x.shape)"),
    ),
    "a module that is not set up": (
        (LINEAR, "is `super().__init__()` the first line of its __init__? It begins in line 34."),
        *layer("        super().__init__()\n", ""),
    ),
    "split for chunk": (
        (HEADS, "`split(3)` cuts into pieces of size 3: `chunk(3)` cuts into 3 pieces."),
        (LENGTH, f"{LENGTH}    one, two, three = x.split(3, dim=-1)\n"),
    ),
    "more axes": ((ATTENTION, "`Q.shape` has 4 values: (2, 3, 5, 11)."), ("d_k = Q.shape[-1]", "b, n, d_k = Q.shape")),
    "a pair in the place of a tensor": (
        (SOFTMAX, f"`largest` is a pair since adapters.py:11, `x.max(dim, keepdim=True)`{ONE_OF}"),
        (LARGEST, "largest = x.max(dim, keepdim=True)"),
    ),
    "a pair that a function of torch refuses": (
        (SOFTMAX, f"`largest` is a pair since adapters.py:11, `x.max(dim, keepdim=True)`{ONE_OF}"),
        (LARGEST, "largest = x.max(dim, keepdim=True)\n    largest = torch.where(torch.isinf(largest), 0.0, largest)"),
    ),
    "a comma too many": (
        (ATTENTION, "`in_features` is a tuple since adapters.py:29, `scores_of(Q.to(wide), K.to(wide), mask)`."),
        (SCORES, f"    scores = scores,\n{SCORES}"),
    ),
    "a list in the place of a tensor": (
        (HEADS, "`heads` is a list since adapters.py:61, `[each for each in q]`."),
        ("    heads = run_scaled", "    heads = [each for each in q]\n    n = heads.shape\n    heads = run_scaled"),
    ),
    "the truth of a tensor": ((ATTENTION, TRUTH), ("    if mask is not None:", "    if mask:")),
    "a dtype without its name": (
        (HEADS, "This function takes a dtype only by name: `dtype=torch.bool`."),
        (CAUSAL, "torch.ones((length, length), torch.bool).tril()"),
    ),
    "a weight for a layer that is not there": (
        (LINEAR, "`Layer` has `weight`, and adapters.py:43 gives the key 'out_proj.weight'.", "'out_proj.weight'"),
        *layer("{'weight': weights}", "{'out_proj.weight': weights}"),
    ),
    "a method of NumPy": (
        (ROPE, "`Tensor` has no `astype`, which arrays of NumPy have; a tensor has `.to(dtype)`."),
        ("self.cos[positions].to(", "self.cos[positions].astype("),
    ),
    "an attribute with another name": (
        (ROPE, "`Rotation` has no `cosine`; did you mean `cos`, which adapters.py:40 sets?"),
        ("self.cos[positions].to(", "self.cosine[positions].to("),
    ),
    "a parameter changed in place": ((LINEAR, IN_PLACE), *layer(PARAMETER, f"{PARAMETER}        self.weight *= 2\n")),
    "a tensor in the place of a parameter": (
        (LINEAR, SET),
        *layer(USE, "    layer = Layer(d_in, d_out)\n    layer.weight = weights\n    return layer(in_features)\n"),
    ),
    "a recursion without an end": (
        (SOFTMAX, "`run_softmax` calls itself in adapters.py:12, again and again: what should end this?"),
        ("    largest = x.amax", AGAIN),
    ),
    "a shape that is called": (
        (ATTENTION, "`Q.shape` holds sizes and is not a method: leave out the parentheses."),
        ("Q.shape[-1]", "Q.shape()[-1]"),
    ),
    "a method not called": ((ATTENTION, "`Q.size` is a method: `Q.size()` calls it."), ("Q.shape[-1]", "Q.size[-1]")),
    "an operator that is forgotten": (
        (ROPE, "`theta` is a number, not a function: is `*`, `@` or another operator missing after it?"),
        ("theta ** (-torch", "theta(-torch"),
    ),
    "a parameter that is called": (
        (LINEAR, "`self.weight` is a tensor, not a function: is `*`, `@` or another operator missing after it?"),
        *layer("x @ self.weight.T", "self.weight(x)"),
    ),
    "a loop over a number": (
        (HEADS, "`num_heads` is the number 3: `range(num_heads)` counts up to it."),
        (LENGTH, f"{LENGTH}    for i in num_heads:\n        pass\n"),
    ),
    "a list of layers that is called": (
        (LINEAR, "`ModuleList` holds layers and is not a layer itself: call each of them."),
        *layer(USE, "    return torch.nn.ModuleList([Layer(d_in, d_out)])(in_features)\n"),
    ),
    "a method inside another": (
        (LINEAR, "`forward` in adapters.py:37 is inside `__init__`: is it indented too far?"),
        *layer(f"    def forward(self, x):\n{GIVES}", f"        def forward(self, x):\n    {GIVES}"),
    ),
    "a forward with another name": (
        (LINEAR, "`Layer` has no `forward`; is the `foward` in adapters.py:37 meant?"),
        *layer("def forward", "def foward"),
    ),
    "an __init__ with another name": (
        (LINEAR, "The definition is `def __int__(self, d_in, d_out)` in adapters.py:33: is `__init__` meant?"),
        *layer("def __init__", "def __int__"),
    ),
    "a def without self": (
        (LINEAR, "The definition is `def forward(x)` in adapters.py:37: is `self` meant?"),
        *layer("def forward(self, x)", "def forward(x)"),
    ),
    "no self": ((LINEAR, "`self.weight` exists: is `self.` missing?"), *layer("x @ self.weight.T", "x @ weight.T")),
    "a math function": ((SOFTMAX, ONE_NUMBER), ("torch.exp(x - largest)", "math.exp(x.detach() - largest.detach())")),
    "a fraction that another function has made": (
        (ROPE, f"`longest` is 1000.0 since adapters.py:52, {FRACTION}"),
        (TURN, TURN.replace("max_seq_len", "max_seq_len / 1")),
        ("torch.arange(longest, dtype=torch.float64)", "torch.ones(longest, dtype=torch.float64).cumsum(0)"),
    ),
    "a slice whose ends are fractions": (
        (LINEAR, f"`half` is 5.0 since adapters.py:38, {FRACTION}"),
        *layer(
            GIVES,
            "        half = self.weight.shape[1] / 1\n        all = slice(0, half)\n"
            "        return x[..., all] @ self.weight.T",
        ),
    ),
    "a pattern that no tensor fits": (
        (HEADS, 'Indexing expression contains duplicate dimension "n".'),
        (LENGTH, f"{LENGTH}    from einops.layers.torch import Rearrange\n    Rearrange('n (h d) -> n n', h=2)\n"),
    ),
    "a name of another file": (
        (ATTENTION, "adapters.py:18 defines `scores_of`: is an import missing?"),
        above("def run_blockwise", "del scores_of"),
    ),
    "too few arguments for torch": (
        (ATTENTION, "TypeError: masked_fill() received an invalid combination of arguments - got (Tensor)"),
        ("scores.masked_fill(~mask, -math.inf)", "scores.masked_fill(~mask)"),
    ),
    "arguments that are all passed by name": (
        (SOFTMAX, "`args` is empty: adapters.py:20 passes every argument by its name."),
        ("def run_softmax(in_features, dim):", BY_POSITION),
        above("def scores_of", "def run_softmax(in_features, dim):\n    return in_rows(x=in_features, dim=dim)"),
    ),
    "an attribute that is None by default": (
        (LINEAR, "`self.scale` is None: adapters.py:43 makes a `Layer` without `scale`."),
        *layer("d_out):", "d_out, scale=None):"),
        (SETS, f"        self.scale = scale\n{SETS}"),
        (GIVES, f"{GIVES} * self.scale"),
    ),
    "a gradient that a backward pass by hand leaves out": (
        (SOFTMAX, f"`backward` returns 1 value, but `forward` has 2 arguments after `ctx`: {FOR_EACH}."),
        above("def run_softmax", SAME),
        ("x - largest)", "Same.apply(x - largest, dim))"),
    ),
    "high index": ((HEADS, "`weights` has 4 values, and the last has the index 3."), ("weights[3].T", "weights[4].T")),
    "a helper without a return": (
        (ATTENTION, f"`scores_of` in adapters.py:18 {NO_RETURN}", "    scores\n    ^^^^^^"),
        (SCORES, "    scores\n"),
    ),
    "an answer that is None": (
        (SOFTMAX, f"`run_softmax` in adapters.py:9 {NO_RETURN}", "    (e / torch.where"),
        ("    return (e / torch.where", "    (e / torch.where"),
    ),
    "arguments in another order by their names": (
        (LINEAR, f"passes `d_out`, 7, for `d_in` {OF_INIT}", "layer.load_state_dict({'weight': weights})"),
        *layer(MAKE, "Layer(d_out, d_in)", LOADS),
    ),
    "arguments in another order by their sizes": (
        (LINEAR, f"passes `weights.shape[0]`, 7, for `d_in` {OF_INIT}", "layer.load_state_dict({'weight': weights})"),
        *layer(MAKE, "Layer(weights.shape[0], weights.shape[1])", LOADS),
    ),
    "a fraction where a whole number is needed": (
        (HEADS, f"`length` is 7.0 since adapters.py:56, {FRACTION}", "torch.ones((length, length), dtype=torch.bool)"),
        (LENGTH, "    length = x.shape[-2] / 1\n"),
        ("torch.ones(length, length, dtype", "torch.ones((length, length), dtype"),
    ),
    "what gives a tensor its shape, where some calls return": (
        (ROPE, "Among the calls that return, the answer is wrong in 1 of the 2 stored cases.", f"{TABLE}.unsqueeze(1)"),
        (TABLE, f"{TABLE}.unsqueeze(1)"),
    ),
    "which line changes what a gradient needs": (
        (SOFTMAX, "adapters.py:15 changes a tensor of this shape in place.", "e = torch.exp(x - largest)"),
        ("total = e.sum(dim, keepdim=True)", "total = e.sum(dim, keepdim=True)\n    e.mul_(1)"),
    ),
    "tensors that a backward pass expects and the forward pass does not save": (
        (SOFTMAX, "`ctx.saved_tensors` has 1 values: adapters.py:12 saves them."),
        above("def run_softmax", SAVES),
        ("x - largest)", "Saves.apply(x - largest))"),
    ),
    "an attribute that the constructor sets too late": (
        (LINEAR, "adapters.py:35 sets it, and line 34 runs before that.", "self.depth"),
        above(MAKES, EARLY),
        (ANSWER, "    return Early().ask() * in_features\n"),
    ),
    "a constructor that does not call that of its base class": (
        (LINEAR, "`Base.__init__`; `Own.__init__`, which begins in adapters.py:38, does not call that.", "self.scale"),
        above(MAKES, INHERITS),
        (ANSWER, "    return Own(2).ask() * in_features\n"),
    ),
    "a constructor that a class takes from another": (
        (LINEAR, "in adapters.py:33; `Mixed`, in adapters.py:36, takes it from `Base`.", "Mixed(2)"),
        above(MAKES, "class Base:\n    def __init__(self):\n        pass\n\nclass Mixed(Base):\n    pass"),
        (ANSWER, "    return Mixed(2)\n"),
    ),
    "a method of ones own that is not called": (
        (LINEAR, "`self.rows` is a method, defined in adapters.py:33: `self.rows()` calls it.", "self.rows * 2"),
        above(MAKES, METHOD),
        (ANSWER, "    return Rows().twice()\n"),
    ),
    "an index of a list that is too high": (
        (LINEAR, "the last has the index 1; `last` is 2 since adapters.py:34, `len(sizes)`.", "sizes[last]"),
        (ANSWER, "    sizes = [d_in, d_out]\n    last = len(sizes)\n    return in_features * sizes[last]\n"),
    ),
    "a row that a loop counts too far": (
        (LINEAR, "`row` is 7 in line 33, `for row in range(1, d_out + 1)`.", "weights[row]"),
        (ANSWER, "    for row in range(1, d_out + 1):\n        in_features = in_features * weights[row].sum()\n"),
    ),
    "a row that is computed from what a loop counts": (
        (LINEAR, "`half` is 4 in line 33, `for half in range(d_out)`.", "weights[row]"),
        (ANSWER, "    for half in range(d_out):\n        row = 2 * half\n        in_features = weights[row] * 2\n"),
    ),
    "a helper without a return, whose answer is unpacked": (
        (ATTENTION, f"`sizes_of` in adapters.py:18 {NO_RETURN}", "    x.shape[-2:]"),
        above("def scores_of", "def sizes_of(x):\n    x.shape[-2:]"),
        ("d_k = Q.shape[-1]", "_, d_k = sizes_of(Q)"),
    ),
    "a method with another name than the abstract one": (
        (LINEAR, "`Own` has no `apply`; is the `aply` in adapters.py:39 meant?", "def aply(self, x):"),
        above(MAKES, ABSTRACT),
        ("import math\n", "import abc\nimport math\n"),
        (ANSWER, "    return Own().apply(in_features)\n"),
    ),
    "an index of which a loop counts the half": (
        (LINEAR, "`i` is 2 in line 33, `for i in range(4)`.", "weights[4 * i]"),
        (ANSWER, "    for i in range(4):\n        in_features = weights[4 * i]\n"),
    ),
    "a list that another name stands for": (
        (LINEAR, "`joined` is a list since adapters.py:34, `rows`.", "joined.reshape"),
        (ANSWER, "    rows = [in_features @ w for w in weights]\n    joined = rows\n    return joined.reshape(-1)\n"),
    ),
    "a dictionary that lacks a dtype": (
        (LINEAR, "`WIDE` has the key torch.float16 since adapters.py:32.", "WIDE[in_features.dtype]"),
        above(MAKES, "WIDE = {torch.float16: torch.float32}"),
        (ANSWER, "    return in_features.to(WIDE[in_features.dtype])\n"),
    ),
    "a buffer with another name": (
        (LINEAR, "`Layer` has no `weight`; did you mean `weights`, which adapters.py:35 sets?", "self.weight"),
        above(MAKES, LAYER),
        (PARAMETER, "        self.register_buffer('weights', torch.ones(d_out, d_in))\n"),
        (ANSWER, "    return Layer(d_in, d_out)(in_features)\n"),
    ),
    "a pattern that has a name": (
        (HEADS, "`JOIN` stands in adapters.py:6.", "rearrange(heads, JOIN)"),
        ("from einops", 'JOIN = "... h n d -> ... n (h e)"\nfrom einops'),
        (MERGE, "rearrange(heads, JOIN)"),
    ),
    "a mask of fractions that a helper hands on": (
        (HEADS, "`where` is float32 since line 68, `torch.ones(length, length)`.", "torch.where(where, x, -math.inf)"),
        (CAUSAL, "handed(torch.ones(length, length))"),
        above("def attend_by_heads", HANDED),
        ("run_scaled_dot_product_attention(q, k, v, mask)", "hide(handed(q @ k.mT), mask)"),
    ),
    "a context that begins with nothing": (
        (SOFTMAX, f"`Wide.__enter__` in adapters.py:10 {NO_RETURN}", f"    self.keep = True\n    {'^' * 16}\nAll 17 "),
        above("def run_softmax", CONTEXT),
        ("    largest = x.amax", "    with Wide() as wide:\n        largest = x.amax"),
        ("keepdim=True", "keepdim=wide.keep"),
    ),
    "a name that a function keeps to itself": (
        (ATTENTION, OWN_NAME, "    SCALE = d_k**-0.5\n    ^^^^^\nAll 37 failing tests stop at this error."),
        above("def scores_of", "SCALE = None\n\n\ndef make(d_k):\n    SCALE = d_k**-0.5"),
        ("    scores = einsum(", "    make(d_k)\n    scores = SCALE[()] * einsum("),
    ),
    # The values are missing, and the mask comes in their place.
    "an argument that a call lacks": (
        (HEADS, "`values` is bool since line 64, `torch.ones(length, length, dtype=torch.bool)`.", LACKS),
        above("def attend_by_heads", ATTEND),
        ("heads = run_scaled_dot_product_attention(q, k, v, mask)", "values = v\n    heads = attend(q, k, mask)"),
    ),
}


@pytest.mark.parametrize(("told", "edits"), [(told, edits) for told, *edits in CAUSES.values()], ids=CAUSES)
def test_the_cause_of_a_crash_is_told_with_its_line(find: Explain, told: tuple[str, ...], edits: Edits) -> None:
    problem, said, *line = told
    finding = find([problem], *edits)[0]
    assert any(each.endswith(said) for each in finding.said), finding.said
    assert all(each in "\n".join((*finding.code, finding.proof)) for each in line)
    assert not finding.question.startswith("What does this line take for granted")


UNKNOWN: dict[str, tuple[tuple[str, ...], ...]] = {
    "an argument that is None by default, and is changed in the line that raises": (
        (ATTENTION, "is None since"),
        (WIDE, f"    mask = ~mask\n{WIDE}"),
    ),
    "a name that is None where a branch did not run": (
        (ATTENTION, "max(Q.shape)"),
        ("d_k = Q.shape[-1]", "few = None\n    if Q.ndim > 9:\n        few = max(Q.shape)\n    d_k = few + 1"),
    ),
    "positions that are right beside a table of fractions": (
        (HEADS, "`self.cos` is"),
        ("torch.arange(in_features.shape[-2]) if", f"{FRACTIONS} if"),
    ),
    "a tensor that lies as it should": (
        (HEADS, "contiguous since"),
        (f"    return {MERGE}", "    return heads.transpose(-3, -2).view(x.shape)"),
    ),
    "a recursion that passes its arguments on in another order": (
        (SOFTMAX, "another order"),
        above("def run_softmax", "def divide(a, b):\n    return divide(b, a % b) if b else a.shape"),
        ("e = torch", "divide(4, 6)\n    e = torch"),
    ),
    "a function of torch's with the name of one of the student's": (
        (SOFTMAX, "the definition is"),
        above("def run_softmax", "def softmax(x):\n    return x"),
        (LARGEST, f"{LARGEST}\n    torch.nn.functional.softmax(x, axis=dim)"),
    ),
    "a None in the place of an operand": (
        (ATTENTION, "the call passes"),
        ("d_k = Q.shape[-1]", "d_k = torch.einsum('...qd,...kd->...qk', Q, mask)"),
    ),
}


@pytest.mark.parametrize(("told", "edits"), [(told, edits) for told, *edits in UNKNOWN.values()], ids=UNKNOWN)
def test_nothing_untrue_is_told_of_a_crash(find: Explain, told: tuple[str, str], edits: Edits) -> None:
    problem, said = told
    first = find([problem], *edits)[0]
    assert first.id.startswith(f"{problem}-raises-")
    assert said not in " ".join(first.said), first.said


INIT = "class Rotation:\n    def __init__(self, d, theta, longest):\n"
BUILT = "        self.cos, self.sin = angles.cos(), angles.sin()\n"
ONCE = INIT.replace(":\n", ":\n    cos = None\n\n", 1) + "        if self.cos is not None:\n"
GLOBAL = INIT.replace("class", "COS = None\n\n\nclass") + "        global COS, SIN\n        if COS is not None:\n"
READ = "cos, sin = self.cos[positions].to(x.dtype), self.sin"


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        ([(INIT, f"{ONCE}            return\n"), (BUILT, BUILT.replace("self", "Rotation"))], READ),
        (
            [
                (INIT, f"{GLOBAL}            return\n"),
                (BUILT, "        COS, SIN = angles.cos(), angles.sin()\n"),
                (READ, "cos, sin = COS[positions].to(x.dtype), SIN"),
            ],
            "cos, sin = COS[positions]",
        ),
    ],
    ids=["in a class", "global"],
)
@pytest.mark.parametrize("problem", [ROPE, HEADS])
def test_a_table_of_a_first_call_is_told_where_it_is_read(find: Explain, problem: str, edits: Edits, line: str) -> None:
    finding, *_ = find([problem], *edits)
    assert finding.said[0] == "This value is left over from an earlier call. Run first, the test passes."
    assert line in finding.code[1]
    assert finding.code[2].count("^") in (len("COS"), len("self.cos"))


def test_a_missing_return_is_one_finding_of_two_problems(find: Explain) -> None:
    edit = "    return (weights @ V.to(wide)).to(Q.dtype)", "    (weights @ V.to(wide)).to(Q.dtype)"
    first, later = find([ATTENTION, HEADS], edit)
    assert first.said[1] == f"`run_scaled_dot_product_attention` in adapters.py:26 {NO_RETURN}"
    assert later.is_of_earlier


def test_a_value_of_another_shape_that_makes_a_line_raise_is_told_with_its_proof(find: Explain) -> None:
    finding, *_ = find([HEADS], (CAUSAL, "torch.ones(length, length + 1, dtype=torch.bool)"))
    assert finding.said[0].startswith("RuntimeError: ")
    assert finding.said[1].startswith("Expected the causal mask, of shape (7, 7); found shape (7, 8)")
    assert finding.proof.startswith("With the causal mask here, ")


def test_a_right_value_that_nothing_uses_is_pointed_at(find: Explain) -> None:
    (finding,) = find([ATTENTION], ("scores = scores.masked_fill(", "scores.masked_fill("))
    assert finding.said[0].endswith("nothing uses it."), finding.said


def test_a_number_is_no_tensor_whose_shape_is_told(find_alone: Explain) -> None:
    body = "    table = torch.zeros(3, 7)\n    end = min(2, 9)\n    table[:end] = torch.ones(3, 7)\n"
    (crash,) = find_alone("softmax", ("    e = torch.exp(x - largest)\n", f"{body}    e = torch.exp(x - largest)\n"))
    assert [line for line in crash.said if " since line " in line] == [
        "`table` is (3, 7) since line 13, `torch.zeros(3, 7)`."
    ]
