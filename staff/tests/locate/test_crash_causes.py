"""What a crash shows of the mistake: small programs as students write them, and the sentence with cause and line."""

import pytest

from staff.tests.locate.conftest import ATTENTION, HEADS, LINEAR, ROPE, SOFTMAX, Explain

Edits = list[tuple[str, str]]
MAKES = "def run_linear(d_in, d_out, weights, in_features):\n"
FUNCTOOLS, ANSWER = ("import math\n", "import functools\nimport math\n"), "    return in_features @ weights.T\n"
USE = "    layer = Layer(d_in, d_out)\n    return torch.func.functional_call(layer, {'weight': weights}, in_features)\n"
LAYER = """class Layer(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(d_out, d_in))

    def forward(self, x):
        return x @ self.weight.T


"""
EXP = "    e = torch.exp(x - largest)"
LOAD = "    layer = Layer(d_in, d_out)\n    layer.load_state_dict({})\n    return layer(in_features)\n"
OUTER = "    outer = torch.nn.Module()\n    outer.parts = "
LENT = "    return torch.func.functional_call(outer, {{'{}.weight': weights}}, in_features)\n"
SETS, GIVES, MAKE = "        self.weight = ", "        return x @ self.weight.T", "Layer(d_in, d_out)"
WIDEN = "def widen(x):\n    if x.dtype == torch.float16:\n        return x.float()\n\n\ndef run_softmax"
PARAMETER = "        self.weight = torch.nn.Parameter(torch.ones(d_out, d_in))\n"
LARGEST = "largest = x.amax(dim, keepdim=True)\n    largest = torch.where(largest == -math.inf, 0.0, largest)"
WIDE = "    wide = torch.promote_types(Q.dtype, torch.float32)\n    weights"
SOFTMAX_OF_TORCH = "\n    torch.nn.functional.softmax(x, axis=dim)"
DIVIDE = "def divide(a, b):\n    return divide(b, a % b) if b else a.shape\n\n\ndef run_softmax"
AGAIN = "    if x.dtype != torch.float64:\n        return run_softmax(x.float(), dim)\n    largest = x.amax"
LENGTH, MERGE = "    length = x.shape[-2]\n", 'rearrange(heads, "... h n d -> ... n (h d)")'
CAUSAL, SCORES = "torch.ones(length, length, dtype=torch.bool).tril()", "    return scores\n"
TABLES = (
    "TABLES = {}\n\n\ndef keep(d, theta, longest):\n    TABLES[(theta, d, longest)] = Rotation(d, theta, longest)\n\n\n"
)
TURN = "    return Rotation(d_k, theta, max_seq_len)(in"
BY_POSITION = "def in_rows(*args, **kwargs):\n    in_features, dim = args[0], kwargs['dim']"
SAME = """class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


"""
ONE_OF, FOR_EACH = ": take one of `.values` and `.indices`.", "return a gradient, or None, for each"
NONE = "is None, since its decorator gives nothing back"
ONE_LAYER = "holds one layer several times instead of several layers"
FRACTIONS = "torch.arange(in_features.shape[-2], dtype=in_features.dtype)"


def layer(old: str, new: str, use: str = USE) -> Edits:
    """A linear layer as a module with a mistake, or with one in its use."""
    assert old in LAYER + use
    return [(MAKES, LAYER.replace(old, new) + MAKES), (ANSWER, use.replace(old, new))]


CAUSES: dict[str, tuple[Edits, tuple[str, str]]] = {
    "a pair that goes to another function": (
        [(LARGEST, "largest = torch.max(x, dim, keepdim=True)\n    largest = torch.clamp(largest, min=-1e30)")],
        (SOFTMAX, f"`largest` is a pair since adapters.py:11, `torch.max(x, dim, keepdim=True)`{ONE_OF}"),
    ),
    "a decorator without a return": (
        [
            (
                "def run_softmax",
                "def keep(function):\n    def call(x):\n        return function(x)\n\n\n"
                "@keep\ndef power(x):\n    return torch.exp(x)\n\n\ndef run_softmax",
            ),
            ("torch.exp(x - largest)", "power(x - largest)"),
        ],
        (SOFTMAX, f"`power` in adapters.py:15 {NONE}: `keep`, in adapters.py:9, has no `return`."),
    ),
    "a decorator with arguments, and no return inside": (
        [
            (
                "def run_softmax",
                "def named(name):\n    def keep(function):\n        function.name = name\n\n    return keep\n\n\n"
                "@named('power')\ndef power(x):\n    return torch.exp(x)\n\n\ndef run_softmax",
            ),
            ("torch.exp(x - largest)", "power(x - largest)"),
        ],
        (SOFTMAX, f"`power` in adapters.py:17 {NONE}: `keep`, inside `named`, in adapters.py:10, has no `return`."),
    ),
    "a partial whose argument takes the place of another": (
        [
            FUNCTOOLS,
            (MAKES, f"def multiply(weight, x):\n    return torch.einsum('...i,oi->...o', x, weight)\n\n\n{MAKES}"),
            (ANSWER, "    use = functools.partial(multiply, in_features)\n    return use(weights)\n"),
        ],
        (LINEAR, "`use` is a partial of `multiply`, made in adapters.py:38: what it holds goes to `weight`."),
    ),
    "a shape that another line reads": (
        [(LENGTH, f"{LENGTH}    rows = torch.ones(99, 3)\n    gain = torch.zeros(rows.shape)\n    x = x + gain\n")],
        (HEADS, "`gain` is (99, 3) since line 57, `torch.ones(99, 3)`."),
    ),
    "a function that defines another one and does not return it": (
        [
            ("def run_softmax", "def make():\n    def power(x):\n        return torch.exp(x)\n\n\ndef run_softmax"),
            ("    e = torch.exp(x - largest)", "    e = apply(x - largest, **dict(power=make()))"),
            ("def run_softmax", "def apply(x, power):\n    return power(x)\n\n\ndef run_softmax"),
        ],
        (SOFTMAX, "`make` in adapters.py:9 defines `power`, and has no `return`."),
    ),
    "what gives None, kept in an attribute": (
        layer(GIVES, "        self.b = self.register_buffer('b', x)\n        return x @ self.weight.T + self.b[0]"),
        (LINEAR, "`self.b` is None since adapters.py:38, `self.register_buffer('b', x)`."),
    ),
    "what gives None, kept in a name": (
        [(LENGTH, f"{LENGTH}    parts = []\n    for w in weights:\n        parts = parts.append(w)\n")],
        (HEADS, "`parts` is None since adapters.py:59, `parts.append(w)`."),
    ),
    "a function that returns in one branch alone": (
        [
            ("def run_softmax", WIDEN),
            ("x = in_features.to(torch.promote_types(in_features.dtype, torch.float32))", "x = widen(in_features)"),
        ],
        (SOFTMAX, "`widen` in adapters.py:9 has a `return` only in line 11, and returns None if that does not run."),
    ),
    "one layer several times": (
        layer(
            USE,
            "    layers = torch.nn.ModuleList([Layer(d_in, d_out)] * 3)\n"
            "    given = {f'{i}.weight': weights for i in range(3)} | {'0.weight': weights + 1}\n"
            "    return torch.func.functional_call(layers, given, in_features)\n",
        ),
        (LINEAR, f"The list in adapters.py:42, `[Layer(d_in, d_out)] * 3`, {ONE_LAYER}."),
    ),
    "a mask of fractions that is inverted": (
        [(CAUSAL, "torch.ones(length, length).tril()")],
        (HEADS, "`mask` is float32 since line 60, `torch.ones(length, length)`."),
    ),
    "a mask of fractions that is joined": (
        [(CAUSAL, "torch.ones(length, length).tril()\n    mask = mask & mask")],
        (HEADS, "`mask` is float32 since line 60, `torch.ones(length, length)`."),
    ),
    "a dtype that goes through several lines": (
        [
            ("turned = torch.empty_like(x)", "turned = torch.empty(x.shape, dtype=torch.float64)"),
            ("weights @ V.to(wide)", "weights @ V"),
            ("wide = torch.promote_types(Q.dtype, torch.float32)\n    weights", "wide = Q.dtype\n    weights"),
        ],
        (HEADS, "`weights` is float64 since line 45, `torch.empty(x.shape, dtype=torch.float64)`."),
    ),
    "positions that are fractions": (
        [("torch.arange(in_features.shape[-2]) if", f"{FRACTIONS} if")],
        (HEADS, f"`positions` is float32 since line 84, `{FRACTIONS}`."),
    ),
    "a keyword that another line binds": (
        [
            FUNCTOOLS,
            (MAKES, f"def multiply(x, weight):\n    return x @ weight.T\n\n\n{MAKES}"),
            (ANSWER, "    use = functools.partial(multiply, weights=weights)\n    return use(in_features)\n"),
        ],
        (LINEAR, "`multiply` has the parameter `weight`, but no `weights`, which adapters.py:38 passes."),
    ),
    "layers in a plain list": (
        layer(
            USE,
            "    outer = torch.nn.Module()\n    outer.parts = [Layer(d_in, d_out)]\n"
            "    outer.load_state_dict({'parts.0.weight': weights})\n    return outer.parts[0](in_features)\n",
        ),
        (LINEAR, "`self.parts` is a plain list: without nn.ModuleList its layers are not part of `Module`."),
    ),
    "layers in a plain list of a class": (
        layer(
            PARAMETER,
            f"{PARAMETER}        self.parts = [torch.nn.Linear(d_in, d_out)]\n",
            LOAD.format("{'weight': weights, 'parts.0.weight': weights}"),
        ),
        (
            LINEAR,
            "a plain list since adapters.py:36: without nn.ModuleList its layers are not part of `Layer`.",
        ),
    ),
    "a buffer that is part of the state dict": (
        layer(
            PARAMETER,
            f"{PARAMETER}        self.register_buffer('mask', torch.ones(3))\n",
            LOAD.format("{'weight': weights}"),
        ),
        (LINEAR, "`mask` is a buffer since adapters.py:36: with `persistent=False` it is not part of the state dict."),
    ),
    "a module that is not set up, and fails later": (
        layer(
            f"        super().__init__()\n{PARAMETER}",
            "        self.size = d_in\n",
            f"    Layer(d_in, d_out).train()\n{ANSWER}",
        ),
        (LINEAR, "is `super().__init__()` the first line of its __init__? It begins in adapters.py:34."),
    ),
    "a setting that nobody passes": (
        [
            (MAKES, f"class Config:\n    def __init__(self, width, rows=None):\n        self.rows = rows\n\n\n{MAKES}"),
            (ANSWER, f"    config = Config(d_in)\n    torch.arange(config.rows)\n{ANSWER}"),
        ],
        (LINEAR, "`config.rows` is None: adapters.py:38 makes a `Config` without `rows`."),
    ),
    "a setting of a dataclass that nobody passes": (
        [
            ("import math\n", "import math\nfrom dataclasses import dataclass\n"),
            (MAKES, f"@dataclass\nclass Config:\n    rows: int | None = None\n\n\n{MAKES}"),
            (ANSWER, f"    config = Config()\n    torch.arange(config.rows)\n{ANSWER}"),
        ],
        (LINEAR, "`config.rows` is None: adapters.py:39 makes a `Config` without `rows`."),
    ),
    "numbers of another dtype than those that they replace": (
        [("    e = torch.exp(x - largest)", f"    kept = torch.zeros(x.shape)\n    kept[x < 9] = x[x < 9]\n{EXP}")],
        (SOFTMAX, "`kept` is float32 since adapters.py:13, `torch.zeros(x.shape)`."),
    ),
    "a name that is not imported": (
        [("import math\n", "import math\nfrom functools import wraps\n"), (LENGTH, f"{LENGTH}    partial(len)\n")],
        (HEADS, "adapters.py:4 imports from `functools`, which has `partial`."),
    ),
    "a number where positions belong": (
        [
            (
                "def run_rope",
                "def turn(x, theta, positions):\n    return x * positions[..., None] / theta\n\n\ndef run_rope",
            ),
            (TURN, "    positions = token_positions\n    return turn(in_query_or_key, positions, theta).sum(in"),
        ],
        (ROPE, "passes `positions` for `theta` of `def turn(x, theta, positions)` in adapters.py:51."),
    ),
    "a table that a constructor does not keep": (
        [("self.cos, self.sin = angles.cos(), angles.sin()", "cos, self.sin = angles.cos(), angles.sin()")],
        (ROPE, "`Rotation` has no `cos`: `__init__` computes `cos` in adapters.py:40, and does not keep it on `self`."),
    ),
    "a property of what nothing sets": (
        layer(
            "        return x @ self.weight.T\n",
            "        return x @ self.turned\n\n    @property\n    def turned(self):\n        return self.wieght.T\n",
        ),
        (LINEAR, "`Layer` has no `wieght`; did you mean `weight`, which adapters.py:35 sets?"),
    ),
    "a module that a dictionary lacks": (
        layer(USE, "    outer = torch.nn.ModuleDict({'one': Layer(d_in, d_out)})\n" + LENT.format("two")),
        (LINEAR, "`ModuleDict` in adapters.py:42 has `one`, and adapters.py:43 gives the key 'two.weight'."),
    ),
    "layers in a plain list, to which weights are lent": (
        layer(USE, f"{OUTER}[Layer(d_in, d_out)]\n" + LENT.format("parts.0")),
        (LINEAR, "since adapters.py:43: without nn.ModuleList its layers are no part of the module."),
    ),
    "layers in a plain dictionary, to which weights are lent": (
        layer(USE, OUTER + "{'one': Layer(d_in, d_out)}\n" + LENT.format("parts.one")),
        (LINEAR, "a plain dict since adapters.py:43: without nn.ModuleDict its layers are no part of the module."),
    ),
    "an argument that a partial does not pass": (
        [
            FUNCTOOLS,
            (MAKES, f"def multiply(weight, x, scale):\n    return x @ weight.T * scale\n\n\n{MAKES}"),
            (ANSWER, "    use = functools.partial(multiply, scale=1)\n    return use(in_features)\n"),
        ],
        (LINEAR, "in adapters.py:33, and `use` is a partial of it since line 38."),
    ),
    "a method without a return, of an object that its answer replaces": (
        [
            (
                "        return turned\n",
                "        return turned\n\n    def longer(self):\n        Rotation(14, 1e4, 99)\n",
            ),
            (
                TURN,
                "    turn = Rotation(d_k, theta, max_seq_len)\n    turn = turn if turn is None else turn.longer()\n"
                "    return turn.cos.sum(in",
            ),
        ],
        (ROPE, "`Rotation.longer` in adapters.py:50 has no `return`, so it gives None."),
    ),
    "a key in another order": (
        [
            ("class Rotation:", f"{TABLES}class Rotation:"),
            (TURN, "    keep(d_k, theta, max_seq_len)\n    return TABLES[d_k, theta, max_seq_len](in"),
        ],
        (ROPE, "`TABLES` has the key (10000.0, 14, 1000), but no key (14, 10000.0, 1000). adapters.py:40 stores it."),
    ),
    "a key of weights that another adapter gives, too": (
        [
            (
                LENGTH,
                "    layer = torch.nn.Linear(1, 1, bias=False)\n    {'wieght': layer}\n"
                "    layer.load_state_dict(\n        {'wieght': layer.weight}\n    )\n    length = x.shape[-2]\n",
            )
        ],
        (HEADS, '  the adapter gave "wieght", in adapters.py:59'),
    ),
    "a key that is misspelt": (
        [(LENGTH, "    kept = {'length': x.shape[-2]}\n    length = kept['lenght']\n")],
        (HEADS, "`kept` has the key 'length', but no key 'lenght'. adapters.py:56 gives it."),
    ),
    "a key that another line gives": (
        [
            (LENGTH, "    kept = dict([keep('length', x.shape[-2])])\n    length = kept['lengths']\n"),
            ("class Rotation:", "def keep(name, value):\n    return name, value\n\n\nclass Rotation:"),
        ],
        (HEADS, "`kept` has the key 'length', but no key 'lengths'. adapters.py:60 gives it."),
    ),
    "a key that is not there": (
        [(LENGTH, "    kept = {'q': 1, 'k': 2}\n    length = kept['output']\n")],
        (HEADS, "`kept` has the keys 'q' and 'k'."),
    ),
    "two arguments of a constructor exchanged": (
        [("Rotation(d_model // num_heads, theta, max_seq_len)", "Rotation(theta, d_model // num_heads, max_seq_len)")],
        (HEADS, "adapters.py:83 passes `theta` for `d` of `def __init__(self, d, theta, longest)` in adapters.py:37."),
    ),
    "a table that is too short": (
        [
            ("angles = torch.arange(longest, ", "rows = torch.arange(longest - 1, "),
            ("[:, None] * freq", "\n        angles = rows[:, None] * freq"),
        ],
        (ROPE, "The size 10 comes from line 39, `longest - 1`."),
    ),
    "a table that gets a length that is too short": (
        [(TURN, "    return Rotation(d_k, theta, max_seq_len - 1)(in")],
        (ROPE, "The size 10 comes from line 52, `max_seq_len - 1`."),
    ),
    "a table that is too short, and is read at a number, too": (
        [
            (TURN, "    return Rotation(d_k, theta, max_seq_len - 1)(in"),
            (
                "        cos, sin = self.cos[positions]",
                "        start = 0\n        cos, sin = self.cos[positions, start:]",
            ),
        ],
        (ROPE, "The size 10 comes from line 53, `max_seq_len - 1`."),
    ),
    "heads that are not joined before a function that was called before": (
        [
            ("def attend_by_heads", "def project(each, w):\n    return each @ w.T\n\n\ndef attend_by_heads"),
            ("x @ w.T, ", "project(x, w), "),
            (
                f"    return {MERGE} @ weights[3].T",
                "    moved = heads.transpose(-3, -2)\n    return project(moved, weights[3])",
            ),
        ],
        (HEADS, "since line 66, `heads.transpose(-3, -2)`."),
    ),
    "an axis that positions get in the wrong place": (
        [("positions.unsqueeze(-2) if", "positions.unsqueeze(0) if")],
        (HEADS, "since line 85, `positions.unsqueeze(0)`."),
    ),
    "a view of what was transposed before": (
        [(f"    return {MERGE}", "    turned = heads.transpose(-3, -2)\n    return turned.view(x.shape)")],
        (HEADS, "`turned` is not contiguous since line 62, `heads.transpose(-3, -2)`."),
    ),
    "a module that is not set up": (
        layer("        super().__init__()\n", ""),
        (LINEAR, "is `super().__init__()` the first line of its __init__? It begins in line 34."),
    ),
    "split for chunk": (
        [(LENGTH, f"{LENGTH}    one, two, three = x.split(3, dim=-1)\n")],
        (HEADS, "`split(3)` cuts into pieces of size 3: `chunk(3)` cuts into 3 pieces."),
    ),
    "a shape of more axes": (
        [("d_k = Q.shape[-1]", "batch, n, d_k = Q.shape")],
        (ATTENTION, "`Q.shape` has 4 values: (2, 3, 5, 11)."),
    ),
    "a pair in the place of a tensor": (
        [(LARGEST, "largest = x.max(dim, keepdim=True)")],
        (SOFTMAX, f"`largest` is a pair since adapters.py:11, `x.max(dim, keepdim=True)`{ONE_OF}"),
    ),
    "a pair that a function of torch refuses": (
        [
            (
                LARGEST,
                "largest = x.max(dim, keepdim=True)\n    largest = torch.where(torch.isinf(largest), 0.0, largest)",
            )
        ],
        (SOFTMAX, f"`largest` is a pair since adapters.py:11, `x.max(dim, keepdim=True)`{ONE_OF}"),
    ),
    "a comma too many": (
        [(SCORES, f"    scores = scores,\n{SCORES}")],
        (ATTENTION, "`in_features` is a tuple since adapters.py:29, `scores_of(Q.to(wide), K.to(wide), mask)`."),
    ),
    "a list in the place of a tensor": (
        [("    heads = run_scaled", "    heads = [each for each in q]\n    n = heads.shape\n    heads = run_scaled")],
        (HEADS, "`heads` is a list since adapters.py:61, `[each for each in q]`."),
    ),
    "the truth of a tensor": (
        [("    if mask is not None:", "    if mask:")],
        (
            ATTENTION,
            "A condition needs one truth value: `is None` asks whether there is a tensor; `&` and `|` join masks.",
        ),
    ),
    "a dtype without its name": (
        [(CAUSAL, "torch.ones((length, length), torch.bool).tril()")],
        (HEADS, "This function takes a dtype only by name: `dtype=torch.bool`."),
    ),
    "a weight for a layer that is not there": (
        layer("{'weight': weights}", "{'out_proj.weight': weights}"),
        (LINEAR, "`Layer` has `weight`, and adapters.py:43 gives the key 'out_proj.weight'."),
    ),
    "a method of NumPy": (
        [("self.cos[positions].to(", "self.cos[positions].astype(")],
        (ROPE, "`Tensor` has no `astype`, which arrays of NumPy have; a tensor has `.to(dtype)`."),
    ),
    "an attribute with another name": (
        [("self.cos[positions].to(", "self.cosine[positions].to(")],
        (ROPE, "`Rotation` has no `cosine`; did you mean `cos`, which adapters.py:40 sets?"),
    ),
    "a parameter that is changed in place": (
        layer(PARAMETER, f"{PARAMETER}        self.weight *= 2\n"),
        (
            LINEAR,
            "Autograd tracks this tensor: make a new one, or use `torch.no_grad()` to set the numbers of a parameter.",
        ),
    ),
    "a tensor in the place of a parameter": (
        layer(USE, "    layer = Layer(d_in, d_out)\n    layer.weight = weights\n    return layer(in_features)\n"),
        (
            LINEAR,
            "A module's parameter can only be set to a Parameter; `functional_call` sets it to a tensor for one call.",
        ),
    ),
    "a recursion without an end": (
        [("    largest = x.amax", AGAIN)],
        (SOFTMAX, "`run_softmax` calls itself in adapters.py:12, again and again: what should end this?"),
    ),
    "a shape that is called": (
        [("Q.shape[-1]", "Q.shape()[-1]")],
        (ATTENTION, "`Q.shape` holds sizes and is not a method: leave out the parentheses."),
    ),
    "a method that is not called": (
        [("Q.shape[-1]", "Q.size[-1]")],
        (ATTENTION, "`Q.size` is a method: `Q.size()` calls it."),
    ),
    "an operator that is forgotten": (
        [("theta ** (-torch", "theta(-torch")],
        (ROPE, "`theta` is a number, not a function: is `*`, `@` or another operator missing after it?"),
    ),
    "a parameter that is called": (
        layer("x @ self.weight.T", "self.weight(x)"),
        (LINEAR, "`self.weight` is a tensor, not a function: is `*`, `@` or another operator missing after it?"),
    ),
    "a loop over a number": (
        [(LENGTH, f"{LENGTH}    for i in num_heads:\n        pass\n")],
        (HEADS, "`num_heads` is the number 3: `range(num_heads)` counts up to it."),
    ),
    "a list of layers that is called": (
        layer(USE, "    return torch.nn.ModuleList([Layer(d_in, d_out)])(in_features)\n"),
        (LINEAR, "`ModuleList` holds layers and is not a layer itself: call each of them."),
    ),
    "a method inside another": (
        layer(f"    def forward(self, x):\n{GIVES}", f"        def forward(self, x):\n    {GIVES}"),
        (LINEAR, "`forward` in adapters.py:37 is inside `__init__`: is it indented too far?"),
    ),
    "a forward with another name": (
        layer("def forward", "def foward"),
        (LINEAR, "`Layer` has no `forward`; is the `foward` in adapters.py:37 meant?"),
    ),
    "an __init__ with another name": (
        layer("def __init__", "def __int__"),
        (LINEAR, "The definition is `def __int__(self, d_in, d_out)` in adapters.py:33: is `__init__` meant?"),
    ),
    "a def without self": (
        layer("def forward(self, x)", "def forward(x)"),
        (LINEAR, "The definition is `def forward(x)` in adapters.py:37: is `self` meant?"),
    ),
    "a name without self": (
        layer("x @ self.weight.T", "x @ weight.T"),
        (LINEAR, "`self.weight` exists: is `self.` missing?"),
    ),
    "a function of math": (
        [("e = torch.exp(x - largest)", "e = math.exp(x.detach() - largest.detach())")],
        (
            SOFTMAX,
            "This function takes one number, but the tensor has several; use a function of torch, such as `torch.exp`.",
        ),
    ),
    "a fraction that another function has made": (
        [
            (TURN, TURN.replace("max_seq_len", "max_seq_len / 1")),
            ("torch.arange(longest, dtype=torch.float64)", "torch.ones(longest, dtype=torch.float64).cumsum(0)"),
        ],
        (ROPE, "`longest` is 1000.0 since adapters.py:52, not a whole number: `/` gives a fraction, `//` does not."),
    ),
    "a slice whose ends are fractions": (
        layer(
            "        return x @ self.weight.T",
            "        half = self.weight.shape[1] / 1\n        all = slice(0, half)\n"
            "        return x[..., all] @ self.weight.T",
        ),
        (LINEAR, "`half` is 5.0 since adapters.py:38, not a whole number: `/` gives a fraction, `//` does not."),
    ),
    "a pattern that no tensor fits": (
        [(LENGTH, f"{LENGTH}    from einops.layers.torch import Rearrange\n    Rearrange('n (h d) -> n n', h=2)\n")],
        (HEADS, 'Indexing expression contains duplicate dimension "n".'),
    ),
    "a name of another file": (
        [("def run_blockwise", "del scores_of\n\n\ndef run_blockwise")],
        (ATTENTION, "adapters.py:18 defines `scores_of`: is an import missing?"),
    ),
    "too few arguments for torch": (
        [("scores.masked_fill(~mask, -math.inf)", "scores.masked_fill(~mask)")],
        (ATTENTION, "TypeError: masked_fill() received an invalid combination of arguments - got (Tensor)"),
    ),
    "arguments that are all passed by name": (
        [
            ("def run_softmax(in_features, dim):", BY_POSITION),
            (
                "\n\ndef scores_of",
                "\n\ndef run_softmax(in_features, dim):\n    return in_rows(x=in_features, dim=dim)\n\n\ndef scores_of",
            ),
        ],
        (SOFTMAX, "`args` is empty: adapters.py:20 passes every argument by its name."),
    ),
    "an attribute that is None by default": (
        [
            (
                MAKES,
                LAYER.replace("d_out):", "d_out, scale=None):")
                .replace(SETS, "        self.scale = scale\n" + SETS)
                .replace(GIVES, GIVES + " * self.scale")
                + MAKES,
            ),
            (ANSWER, USE),
        ],
        (LINEAR, "`self.scale` is None since adapters.py:35, `scale`."),
    ),
    "a gradient that a backward pass by hand leaves out": (
        [("def run_softmax", SAME + "def run_softmax"), ("x - largest)", "Same.apply(x - largest, dim))")],
        (SOFTMAX, f"`backward` returns 1 value, but `forward` has 2 arguments after `ctx`: {FOR_EACH}."),
    ),
    "an index too high": (
        [(f"{MERGE} @ weights[3].T", f"{MERGE} @ weights[4].T")],
        (HEADS, "`weights` has 4 values, and the last has the index 3."),
    ),
}


@pytest.mark.parametrize(("edits", "told"), CAUSES.values(), ids=CAUSES)
def test_the_cause_of_a_crash_is_told_with_its_line(find: Explain, edits: Edits, told: tuple[str, str]) -> None:
    problem, said = told
    finding = find([problem], *edits)[0]
    assert any(each.endswith(said) for each in finding.said), finding.said
    assert not finding.question.startswith("What does this line take for granted")


UNKNOWN: dict[str, tuple[Edits, tuple[str, str]]] = {
    "an argument that is None by default, and is changed in the line that raises": (
        [(WIDE, f"    mask = ~mask\n{WIDE}")],
        (ATTENTION, "is None since"),
    ),
    "a name that is None where a branch did not run": (
        [("d_k = Q.shape[-1]", "few = None\n    if Q.ndim > 9:\n        few = max(Q.shape)\n    d_k = few + 1")],
        (ATTENTION, "max(Q.shape)"),
    ),
    "positions that are right beside a table of fractions": (
        [("torch.arange(in_features.shape[-2]) if", f"{FRACTIONS} if")],
        (HEADS, "`self.cos` is"),
    ),
    "a tensor that lies as it should": (
        [(f"    return {MERGE}", "    return heads.transpose(-3, -2).view(x.shape)")],
        (HEADS, "contiguous since"),
    ),
    "a recursion that passes its arguments on in another order": (
        [("def run_softmax", DIVIDE), ("e = torch", "divide(4, 6)\n    e = torch")],
        (SOFTMAX, "another order"),
    ),
    "a function of torch's with the name of one of the student's": (
        [
            ("def run_softmax", "def softmax(x):\n    return x\n\n\ndef run_softmax"),
            (LARGEST, LARGEST + SOFTMAX_OF_TORCH),
        ],
        (SOFTMAX, "the definition is"),
    ),
    "a None in the place of an operand": (
        [("d_k = Q.shape[-1]", "d_k = torch.einsum('...qd,...kd->...qk', Q, mask)")],
        (ATTENTION, "the call passes"),
    ),
}


@pytest.mark.parametrize(("edits", "told"), UNKNOWN.values(), ids=UNKNOWN)
def test_nothing_untrue_is_told_of_a_crash(find: Explain, edits: Edits, told: tuple[str, str]) -> None:
    problem, said = told
    first = find([problem], *edits)[0]
    assert first.id.startswith(f"{problem}-raises-")
    assert said not in " ".join(first.said), first.said


INIT = "class Rotation:\n    def __init__(self, d, theta, longest):\n"
BUILT = "        self.cos, self.sin = angles.cos(), angles.sin()\n"
ONCE = (
    "class Rotation:\n    cos = None\n\n    def __init__(self, d, theta, longest):\n        if self.cos is not None:\n"
)
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
def test_a_table_that_the_first_call_has_built_is_told_where_it_is_read(
    find: Explain, problem: str, edits: Edits, line: str
) -> None:
    finding, *_ = find([problem], *edits)
    assert finding.said[0] == "This value is left over from an earlier call. Run first, the test passes."
    assert line in finding.code[1]
    assert finding.code[2].count("^") in (len("COS"), len("self.cos"))
