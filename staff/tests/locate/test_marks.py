"""The expressions that are marked in programs with one mistake, or with two, as people write them."""

import pytest

from staff.tests.locate.conftest import RIGHT, Explain, above, marked
from staff.tests.locate.test_calls import ATTENTION, BODY, HALF, MULTIHEAD, SPLIT, UNGUARDED, WEIGHTS

BLOCKWISE, CALL = "blockwise_attention", "run_scaled_dot_product_attention("
HEADS, HIDE = f"heads = {CALL}q, k, v, mask)", "masked_fill(~mask, -math.inf)"
CAUSAL = "torch.ones(length, length, dtype=torch.bool).tril()"
BELOW, ABOVE = CAUSAL.replace(".tril()", ".tril(-1)"), CAUSAL.replace(".tril()", ".tril(1)")
TRIANGLE, PROJECTIONS = f"mask = {CAUSAL}", f"q, k, v = ({SPLIT})"
TURNS, TURNED = "q, k = turn(q), turn(k)", "q, k = rotation(q, positions), rotation(k, positions)"
SIDES, MIXED = 'rearrange(heads, "... h n d -> ... n (h d)")', 'rearrange(heads, "... h n d -> ... n (d h)")'
ATTEND = RIGHT[RIGHT.index("    weights = run_softmax(scores_of") : RIGHT.index("\n\ndef run_linear")]
BY_HEADS = RIGHT[RIGHT.index(f"    {PROJECTIONS}") : RIGHT.index("\n\ndef run_multihead_self_attention(")]
TURN = RIGHT[RIGHT.index("        first, second = x[..., 0::2]") : RIGHT.index("\n\ndef run_rope")]
CALLED = RIGHT[RIGHT.index("    def __call__(self, x") : RIGHT.index("\n\n\ndef run_rope")]
KEPT = RIGHT[RIGHT.index("        frequencies = theta") : RIGHT.index("\n    def __call__(self, x")]
TABLES = KEPT[KEPT.index("        self.cos, self.sin") :]
SHIFTED, MERGED, SWAPPED = (CAUSAL, BELOW), (SIDES, MIXED), ("q, k, v = (", "q, v, k = (")
LOW, ROOT = ("import math\n", "import math\n\nLOW = -1e9\n"), "math.sqrt(d_k)"
OTHER_SIZE = ("d_k = Q.shape[-1]", "d_k = K.shape[-2]")
FOUND_7, SHARED_KEY = "Expected d_k, 11; found 7.", "Calls that need different values share this key"
BLOCKS = "def run_blockwise_attention(Q, K, V, mask=None, block_size=None):\n"
LOWEST, WHERE = "torch.finfo(torch.float16).min", "torch.where(mask, scores, low)"
ADDED = "e @ V[..., j : j + size, :].to(wide)"
FROM_BASE = ("before - largest), torch.exp(scores - largest)", "before - base), torch.exp(scores - base)")
BAND, BANDED = "table.triu(-2 * window)", "table[past : k.shape[-2], : k.shape[-2]] == 1"
TWO_OF_THREE = ("for w in weights[:3])", "for w in (weights[0], weights[1], weights[1]))")
ROWS = "torch.zeros(length, length, dtype=torch.bool)\n    for row in range(length):\n        mask[row, row:] = True"
COUNTED = "at = torch.arange(length * length).reshape(length, length)\n    mask = at // length <= at % length"
RELATE = "torch.tensor([[holds(i, j) for j in range(length)] for i in range(length)])"
LIKE, UPPER = "torch.ones_like(x @ x.mT, dtype=torch.bool).tril(-1)", "torch.triu(torch.ones(1, length, length))"
PAIRS, FROM_1 = "torch.arange(1, d // 2 + 1, dtype=torch.float64)", "torch.arange(1, longest + 1, dtype=torch.float64)"
WIDE = "x.unsqueeze(-4).expand(*x.shape[:-3], group, *x.shape[-3:])"
RESHAPED, WEIGHTS_OF = "wide.reshape(*x.shape[:-3], -1, *x.shape[-2:])", "weights_of(Q.to(wide), K.to(wide), mask)"
BY_LOGARITHM = (
    RIGHT[RIGHT.index("    largest = x.amax(dim, keepdim=True)") : RIGHT.index("\n\ndef scores_of")],
    "    return torch.exp(x - torch.logsumexp(x, dim, keepdim=True)).to(in_features.dtype)\n",
)
SPLITS = """def split(t):
        {}
    q, k, v = split(x @ weights[0].T), split(x @ weights[1].T), split(x @ weights[1].T)"""
KEYS_TWICE = """q, k, v = (x @ w.T for w in weights[:3])
    q, k, v = (rearrange(x, "... n (h d) -> ... h n d", h=num_heads) for x in (q, k, k))"""
MAPPED = """def one(q, k, v):
        scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
        weights = run_softmax(scores.masked_fill(~mask, -math.inf), -1)
        return weights @ v
    heads = torch.vmap(one)(*(x.flatten(0, -3) for x in (q, k, v))).view(q.shape)"""
SPIN = """def spin(x, cos, sin):
    cos, sin = (each.to(x.dtype).expand(*x.shape[:-1], -1) for each in (cos, sin))
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)"""
TAKEN = """taken = ~mask.expand(scores.shape)
        hidden = torch.full_like(scores, -math.inf)
        hidden[taken] = scores[taken]
        scores = hidden"""
MAKE_MASK = """_masks = {}


def make_mask(n):
    if n not in _masks:
        _masks[n] = torch.arange(n)[:, None] > torch.arange(n)
    return _masks[n]


for n in range(99):
    make_mask(n)"""
WEIGH = """def scale(scores, size):
    return scores / math.sqrt(size)


def weigh(scores):
    blind = scores.eq(-math.inf).all(-1, keepdim=True)
    return run_softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)"""
NOT_USED = """scaled = scale(Q.to(wide) @ K.to(wide).mT, K.shape[-2])
    scores = scaled if mask is None else scaled + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    weights = weigh(scaled)"""
SEEN = """    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / math.sqrt(K.shape[-2])
    if mask is None:
        return (run_softmax(scores, -1) @ V.to(wide)).to(Q.dtype)
    seen = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & seen, -math.inf)
    return (run_softmax(scores, -1) @ V.to(wide)).to(Q.dtype)
"""
BY_COLUMNS = """    scores = (Q.to(wide) / math.sqrt(K.shape[-2])) @ K.to(wide).mT
    if mask is None:
        return (run_softmax(scores, -1) @ V.to(wide)).to(Q.dtype)
    seen = mask.any(-1, keepdim=True)
    weights = run_softmax(scores.masked_fill(~mask & seen, -math.inf), -2) * seen
    return (weights @ V.to(wide)).to(Q.dtype)
"""
BOLTZMANN = """def boltzmann(energy):
    e = torch.exp(energy.amin(-1, keepdim=True) - energy)
    return e / e.sum(-1, keepdim=True)


def weights_of(q, k, mask):
    energy = -scores_of(q, k, None)
    if mask is not None:
        energy = energy.masked_fill(~mask & mask.any(-1, keepdim=True), math.inf)
    weights = boltzmann(energy)
    return weights"""
LONELY = """none = torch.tensor(False) if mask is None else lonely(mask)
    hidden = scores_of(Q.to(wide), K.to(wide), None if mask is None else mask | none)
    weights = torch.where(none, 0.0, run_softmax(hidden, -1))"""
IN_ROWS = """def in_rows(q, k, mask, step=4):
    size = q.shape[-2]
    if mask is None:
        return scores_of(q, k, None)
    mask = mask.expand(*mask.shape[:-2], size, k.shape[-2])
    starts = range(0, size, step)
    return torch.cat([scores_of(q[..., i : i + step, :], k, mask[..., : min(step, size - i), :]) for i in starts], -2)
"""
INLINE = """scores = q @ k.mT / math.sqrt(q.shape[-2])
    heads = run_softmax(torch.where(mask, scores, -1e9), -1) @ v"""
TRANSPOSED = """scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, -1e9)
    heads = run_softmax(scores, -1) @ v"""
COLUMNS = """    q, k, v = (x @ w.T for w in weights[:3])
    heads, mask = [], torch.ones(length, length, dtype=torch.bool).tril()
    for i in range(num_heads):
        columns = slice(i, None, num_heads)
        q_i, k_i, v_i = q[..., columns], k[..., columns], v[..., columns]
        if turn is not None:
            q_i, k_i = (turn(each.unsqueeze(-3)).squeeze(-3) for each in (q_i, k_i))
        heads.append(run_scaled_dot_product_attention(q_i, k_i, v_i, mask))
    return torch.cat(heads, -1) @ weights[3].T
"""
KEPT_WRONGLY = """        if (d, theta, longest) not in _TABLES:
            _TABLES[d, theta, longest] = make_table(d, theta, longest)
        self.cos, self.sin = _TABLES[d, theta, longest]

_TABLES = {}

def make_table(d, theta, longest):
    frequencies = theta ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.arange(longest, dtype=torch.float64)[:, None] * frequencies
    return angles.cos(), angles.sin()

class Rotation(Rotation):
"""
CACHE = """        self.cos, self.sin = find_table(d, theta, angles)

_TABLES = {{}}

def find_table(d, theta, angles):
{}    if {} not in _TABLES:
        _TABLES{} = torch.stack((angles.cos(), angles.sin()))
    return _TABLES{}

class Rotation(Rotation):
"""
WITHOUT_THETA = [
    ("self.cos, self.sin = find", "self.table = find"),
    ("(d, theta, angles)\n", "(d, angles)\n        self.cos, self.sin = self.table\n"),
    ("find_table(d, theta, angles):", "find_table(d, angles):"),
]
MATRICES = """    def rows(self, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -{axis})

    def __call__(self, x, positions):
        pairs = x.unflatten(-1, (-1, 2))
        return einsum(self.rows(positions).to(x.dtype), pairs, {pattern}).flatten(-2)"""
TAKEN_ROWS = "self.table[positions].to(x.dtype)"
STACKED = "torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, …"  # a long mark is cut
APPLIED = "... pairs out two, ... pairs two -> ... pairs out"
TRANSPOSES = APPLIED.replace("out two,", "two out,")
STACKS = """        cos, sin = angles.cos(), angles.sin()
        rows = torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)
        self.table = torch.stack(rows, -1)
"""
BY_MATRIX = f"""    def __call__(self, x, positions):
        turn = {TAKEN_ROWS}
        return (turn @ x.unflatten(-1, (-1, 2)).unsqueeze(-1)).flatten(-3)"""
KEPT_IN_LISTS = """        self.cos, self.sin = find_table(d, theta, longest)

_TABLES = {}

def find_table(d, theta, longest):
    key = d, longest
    if key not in _TABLES:
        rows = []
        for position in range(longest):
            rows.append([])
            for i in range(0, d, 2):
                rows[-1].append(position / theta ** (i / d))
        angles = torch.tensor(rows, dtype=torch.float64)
        _TABLES[key] = angles.cos(), angles.sin()
    return _TABLES[key]

class Rotation(Rotation):
"""
SHARE = """def share(x, num_heads):
    owner = torch.arange(num_heads) % x.shape[-3]
    return x.index_select(-3, owner)"""
SHARED = "k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)"
LEFT_OUT = """HALF = {torch.float16}


def widened(function):
    def call(in_features, dim):
        kind = in_features.dtype
        if kind not in HALF:
            return function(in_features, dim)
        return function(in_features.float(), dim).to(kind)

    return call


@widened
def run_softmax("""
MIX = """class Mix:
    def __init__(self, d_k):
        self.d_k = d_k

    def weigh(self, q, k, mask):
        return run_softmax((q @ k.mT * self.d_k ** -0.5).masked_fill(~mask, -math.inf), -1)"""
INVERTED = """    allowed = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool) if mask is None else ~mask
    scores = Q.to(wide) @ K.to(wide).mT / math.sqrt(V.shape[-1])
    weights = run_softmax(torch.where(allowed, scores, -1e9), -1)
    weights = torch.where(allowed.any(-1, keepdim=True), weights, 0.0)
    return (weights @ V.to(wide)).to(Q.dtype)
"""
ACROSS = """        cos, sin = (each.repeat_interleave(2, -1) for each in (cos, sin))
        return x * cos + self.across(x) * sin

    def across(self, x):
        pairs = torch.stack((x[..., 1::2], -x[..., 0::2]), -1)
        return pairs.reshape(x.shape)
"""
PEAK = [
    ("-1e30, dtype", "-math.inf, dtype"),
    (
        "before, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True))",
        """peak = scores.amax(-1, keepdim=True)
            new = torch.maximum(largest, peak)
            base = torch.where(new == -math.inf, 0.0, new)""",
    ),
    ("torch.exp(before - largest), torch.exp(scores - largest)", "torch.exp(largest - base), torch.exp(scores - base)"),
    ("size, :].to(wide)\n        answers", "size, :].to(wide)\n            largest = peak\n        answers"),
]
NEW = "torch.arange(in_features.shape[-2])\n"

Case = tuple[str, list[str], *tuple[str, ...]]
# A name -> the problem, what is marked (for a finding without a place, its id) and how lines that are told begin; then
# the replacements.
CASES = {
    "a mask that is inverted as an index": (  # and not the adapter, which passes on what it gets
        (ATTENTION, ["~mask.expand(scores.shape)"], "Expected the mask; found the mask, inverted."),
        (f"scores = scores.{HIDE}", TAKEN),
    ),
    "a step too many, and not the mask that it reads": (
        (ATTENTION, ["torch.where(mask.any(-1, keepdim=True), 0.0, scores)"]),
        (HIDE, f"{HIDE}\n        scores = torch.where(mask.any(-1, keepdim=True), 0.0, scores)"),
    ),
    "another logarithm of a mask, and not the scores that it is added to": (
        (ATTENTION, ["torch.log1p(mask.to(scores.dtype))", f"{ATTENTION}-unproved"]),
        BY_LOGARITHM,
        (f"scores.{HIDE}", "scores + torch.log1p(mask.to(scores.dtype))"),
    ),
    # The proof puts the mask at the beginning of the table, of which each call takes as much as it needs.
    "a mask that is cut out of a larger table": (
        (MULTIHEAD, ["torch.ones(max(length, 7), 7).tril(1)"]),
        (TRIANGLE, "table = torch.ones(max(length, 7), 7).tril(1)\n    mask = table[:length, :length] == 1"),
    ),
    "a mask that a dictionary keeps": (
        (MULTIHEAD, ["torch.arange(n)[:, None] > torch.arange(n)"]),
        above("def attend_by_heads", MAKE_MASK),
        (CAUSAL, "make_mask(length)"),
    ),
    "a triangle that is cut out of a mask": ((MULTIHEAD, [LIKE]), (CAUSAL, LIKE)),
    "a mask with its axes exchanged": (
        (MULTIHEAD, [UPPER], "Expected the causal mask, inverted; found 1 on the diagonal, where 0 belongs."),
        (CAUSAL, f"{UPPER} == 0"),
    ),
    "a comparison that a helper gets": (
        (MULTIHEAD, ["i > j"], "With another comparison here, all 22 failing tests pass."),
        above("def attend_by_heads", f"def relate(length, holds):\n    return {RELATE}"),
        (CAUSAL, "relate(length, lambda i, j: i > j)"),
    ),
    # Not the slice, nor the comparison, which only write the same two numbers another way.
    "a mask, where its numbers are made": (
        ("decoding", [BAND], f"Line 140 makes a mask of this: `{BANDED}`. Expected the mask; found the mask of"),
        ("mask = distance >= 0", "table = torch.ones(99, 99).tril()"),
        ("mask = mask & (distance < window)", f"table = {BAND}\n    mask = {BANDED}"),
    ),
    "a low number with a name": (
        (ATTENTION, [LOWEST], f"Line 23 uses this: `{WHERE}`. Expected the masked, scaled"),
        (f"scores = scores.{HIDE}", f"low = {LOWEST}\n        scores = {WHERE}"),
    ),
    "a low constant in what is added beside a wrong scale": (
        (ATTENTION, ["K.shape[-2]", "-1e9"]),
        LOW,
        (f"scores.{HIDE}", "scores + torch.zeros(mask.shape).masked_fill(~mask, LOW)"),
        OTHER_SIZE,
    ),
    "a low constant inside a call": (
        (ATTENTION, ["-1e9"]),
        LOW,
        (f"scores.{HIDE}", "torch.where(mask, scores, torch.full_like(scores, LOW))"),
    ),
    "a low number that a helper returns": (
        (ATTENTION, ["torch.finfo(torch.float32).tiny"]),
        above("def scores_of", "def lowest():\n    return torch.finfo(torch.float32).tiny"),
        (HIDE, "masked_fill(~mask, lowest())"),
    ),
    "a size without its root, where it is used": ((ATTENTION, ["d_k"]), (ROOT, "d_k")),
    "a wrong size within a root": ((ATTENTION, ["K.shape[-2]"]), (ROOT, "math.sqrt(K.shape[-2])")),
    "a wrong size that gets a name": ((ATTENTION, ["K.shape[-2]"]), (ROOT, "math.sqrt((d_k := K.shape[-2]))")),
    "a factor of 1, and not what it leaves as it is": (
        (ATTENTION, ["(d_k // d_k) ** -0.5"]),
        ("    scores = einsum", "    one = (d_k // d_k) ** -0.5\n    scores = einsum"),
        (f"/ {ROOT}", "* one"),
    ),
    "a size that a helper computes": (
        (ATTENTION, ["width(Q)"], "Expected √d_k; found d_k. Line 19 computes it: `x.shape[-1]`."),
        above("def scores_of", "def width(x):\n    return x.shape[-1]"),
        (ROOT, "width(Q)"),
    ),
    "a size that is passed for another one": (
        (MULTIHEAD, ["width"], "Expected the length of a head; found d_model."),
        above("def attend_by_heads", "def scale_of(d_k):\n    return 1 / math.sqrt(d_k)"),
        ("num_heads, turn=None):", "num_heads, turn, width):"),
        (HEADS, "heads = run_softmax((q @ k.mT * scale_of(width)).masked_fill(~mask, -math.inf), -1) @ v"),
        ("o_proj_weight), num_heads)", "o_proj_weight), num_heads, None, d_model)"),
        ("lambda x: rotation(x, positions))", "lambda x: rotation(x, positions), d_model)"),
    ),
    "a number that a constructor gets under another name": (
        (MULTIHEAD, ["width"]),
        above("def attend_by_heads", MIX),
        (HEADS, "width = x.shape[-1]\n    heads = Mix(width).weigh(q, k, mask) @ v"),
    ),
    "a mask that is inverted, and read twice, beside a wrong scale": (
        (ATTENTION, ["V.shape[-1]", "~mask"]),
        (ATTEND, INVERTED),
        BY_LOGARITHM,
    ),
    # The masked, scaled scores in place of the scaled ones would make up for both.
    "a mask that is not used beside a wrong scale": (
        (ATTENTION, ["K.shape[-2]", "scaled"], FOUND_7),
        above("def scores_of", WEIGH),
        (WEIGHTS, NOT_USED),
    ),
    # The masked scores, put in place of the others, explain as much, but hide both mistakes.
    "rows that are not set to 0 beside a wrong scale": (
        (ATTENTION, ["K.shape[-2]", "~mask & seen"], FOUND_7, "With these two corrected, all 30 failing tests pass."),
        (ATTEND, SEEN),
    ),
    # Not the right function that gets it: for the columns that hide all, its logarithm is not the reference's.
    "a wrong axis beside a wrong scale": ((ATTENTION, ["K.shape[-2]", "-2"]), BY_LOGARITHM, (ATTEND, BY_COLUMNS)),
    # Any step that is longer than the sequence makes up for the rows of the mask that are taken wrongly.
    "a slice beside a wrong scale, and not a number next to which others do as well": (
        (ATTENTION, ["K.shape[-2]", "..., : min(step, size - i), :"]),
        ("def run_scaled", f"{IN_ROWS}\n\ndef run_scaled"),
        (WEIGHTS, WEIGHTS.replace("scores_of", "in_rows")),
        OTHER_SIZE,
    ),
    "an inverted mask that a wrong scale hides wherever one is passed": (
        (ATTENTION, ["d_k", "mask"], "With these two corrected, all 36 failing tests pass."),
        ("/ math.sqrt(d_k)", "* torch.tensor(d_k, dtype=Q.dtype).reciprocal()"),
        ("masked_fill(~mask,", "masked_fill(mask,"),
    ),
    # Masked scores do not stand for the scale.
    "a wrong mask beside a wrong scale": ((MULTIHEAD, ["q.shape[-2]", ABOVE]), (HEADS, INLINE), (CAUSAL, ABOVE)),
    "a repair of all tests, and not a second value that explains most": (
        (
            ATTENTION,
            ["Q.shape[-1] ** 0.5", "(weights @ V.to(wide)).to(Q.dtype)"],
            "With a mask as one more factor here, too, all 33 failing tests pass.",
        ),
        BY_LOGARITHM,
        (ATTEND, BY_COLUMNS),
        ("Q.to(wide) / math.sqrt(K.shape[-2])", "Q.to(wide) * Q.shape[-1] ** 0.5"),
        (
            "scores.masked_fill(~mask & seen, -math.inf)",
            "torch.where(torch.logical_or(mask, ~seen), scores, -math.inf)",
        ),
        ("-2) * seen", "-1)"),
    ),
    "a repair of all tests, and not a value that explains some": (
        (ATTENTION, ["-2"]),
        above("def run_scaled", "def lonely(mask):\n    return mask.sum(-2, keepdim=True) == 0"),
        UNGUARDED,
        (WEIGHTS, LONELY),
    ),
    "a step that a helper lacks": (
        (ATTENTION, ["boltzmann(energy)"], f"Line 41 returns this: `{WEIGHTS_OF}`. Expected the weights; "),
        above("def run_scaled", BOLTZMANN),
        (WEIGHTS, f"weights = {WEIGHTS_OF}"),
    ),
    "two names that are swapped": (
        (MULTIHEAD, ["v"], "Expected the values of each head; found the keys of each head: the two are swapped."),
        SWAPPED,
    ),
    "two names that are swapped beside a mask that a loop fills": (
        (MULTIHEAD, ["v", "mask[row, row:] = True"]),
        SWAPPED,
        (CAUSAL, ROWS),
    ),
    # The heads' answers in place of what attention returns would make up for both.
    "two names that are swapped beside a wrong mask": (
        (MULTIHEAD, ["v", BELOW], "With all of these corrected, all 22 failing tests pass."),
        SWAPPED,
        SHIFTED,
    ),
    "two names that are swapped, and not the scores that are transposed": (
        (MULTIHEAD, ["k"], "Expected the keys of each head; found the queries of each head: the two are swapped."),
        ("q, k, v = (", "k, q, v = ("),
        (HEADS, TRANSPOSED),
    ),
    "keys for values in one of several calls": (
        (MULTIHEAD, ["x @ weights[1].T"], "Expected the values; found the keys."),
        (PROJECTIONS, SPLITS.format('return rearrange(t, "... n (h d) -> ... h n d", h=num_heads)')),
    ),
    "keys for values beside a mask of counted rows and columns": (
        (MULTIHEAD, ["at // length <= at % length", "w"]),
        TWO_OF_THREE,
        (TRIANGLE, COUNTED),
    ),
    "keys for values in a helper that returns views": (
        (MULTIHEAD, [BELOW, "x @ weights[1].T"]),
        (PROJECTIONS, SPLITS.format("t = t.unflatten(-1, (num_heads, -1))\n        return t.movedim(-2, -3)")),
        SHIFTED,
    ),
    # A right function proves nothing if it gets wrong arguments, so these are tried.
    "keys for values beside heads in another order": ((MULTIHEAD, ["x", MIXED]), (PROJECTIONS, KEYS_TWICE), MERGED),
    "arguments in another order beside a wrong mask": (
        (MULTIHEAD, [BELOW, f"{CALL}q, v, k, mask)"]),
        SHIFTED,
        (HEADS, f"heads = {CALL}q, v, k, mask)"),
    ),
    "one other name in a whole assignment beside a wrong mask": (
        (MULTIHEAD, [CAUSAL.replace("tril", "triu"), "q, v = map(turn, (q, v))"]),
        (TURNS, "q, v = map(turn, (q, v))"),
        (".tril()\n", ".triu()\n"),
    ),
    "values turned in place of keys": ((MULTIHEAD, ["q, v = turn(q), turn(v)"]), (TURNS, "q, v = turn(q), turn(v)")),
    "a step too many for the values, where it is called": (
        (MULTIHEAD, ["turn(v)"], "Expected the values of each head, unchanged: this step should not be here."),
        (TURNS, "q, k, v = turn(q), turn(k), turn(v)"),
    ),
    # Many checkpoints have the shape of what is rotated; with most of them in all three places, a line raises.
    "two mistakes in one function though wrong values make it raise": (
        ("decoding", ["rotation(x, positions)", MIXED], "With these two corrected, all 21 failing tests pass."),
        (TURNED, "q, k, v = (rotation(x, positions) for x in (q, k, v))"),
        (f"{SIDES} @ o_proj", f"{MIXED} @ o_proj"),
    ),
    "a step that a later correction hides in some tests": ((MULTIHEAD, ["k", MIXED]), (TURNS, "q = turn(q)"), MERGED),
    "a dtype that a set with a name lacks": (("softmax", ["{torch.float16}"]), ("def run_softmax(", LEFT_OUT), HALF),
    "a dtype that a helper returns whatever it gets": (
        ("softmax", ["torch.float32"]),
        above("def run_softmax", "def widen(dtype):\n    return torch.float32"),
        ("torch.promote_types(in_features.dtype, torch.float32)", "widen(in_features.dtype)"),
    ),
    "one number in place of the two values that it makes": (
        ("softmax", ["-1"], "With another name here, all 6 failing tests pass."),
        ("    largest = x.amax(dim,", "    axis = -1\n    largest = x.amax(axis,"),
        ("e.sum(dim,", "e.sum(axis,"),
    ),
    "a wrong sign in a stack": (("rope", ["torch.stack((x[..., 1::2], -x[..., 0::2]), -1)"]), (TURN, ACROSS)),
    "a pattern with a name at the top of a file": (
        (MULTIHEAD, ['"... n (d h) -> ... h n d"']),
        ("import math\n", 'import math\n\nSPLIT = "... n (d h) -> ... h n d"\n'),
        ('@ w.T, "... n (h d) -> ... h n d", h', "@ w.T, SPLIT, h"),
    ),
    "a pattern with a name where all that it gets is right": (
        ("rope", [f'"{TRANSPOSES}"']),
        above("class Rotation", f'APPLIED = "{TRANSPOSES}"'),
        (CALLED, MATRICES.format(axis=2, pattern="APPLIED")),
    ),
    "a pattern in a call over several lines": (
        (MULTIHEAD, ['"... h n d -> ... n (d h)"']),
        (SIDES, 'rearrange(\n        heads,\n        "... h n d -> ... n (d h)",\n    )'),
    ),
    "a table of numbers, and not what is computed from it": (
        ("rope", [PAIRS], "Expected the numbers of the pairs; found that value plus 1."),
        ("        frequencies = ", f"        pairs = {PAIRS}\n        frequencies = "),
        ("-torch.arange(0, d, 2, dtype=torch.float64) / d", "-2 * pairs / d"),
    ),
    "pairs that are counted as halves": (
        ("rope", ["torch.arange(d) % (d // 2)"], "With another operator and another operand here, all "),
        ("        frequencies = ", "        pair = torch.arange(d) % (d // 2)\n        frequencies = "),
        ("-torch.arange(0, d, 2, dtype=torch.float64) / d", "-2.0 * pair.double() / d"),
        (TURN, "        return x * cos + torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2) * sin\n"),
    ),
    "a step that is missing inside vmap": (
        (
            MULTIHEAD,
            ['torch.einsum("...qd,...kd->...qk", q, k)'],
            "Expected the scaled scores; found the scores.",
            "With the scaled scores here, all 19 failing tests pass.",
        ),
        (HEADS, MAPPED.replace(" / q.shape[-1] ** 0.5", "")),
    ),
    "a parameter that is read several times, where nothing is passed for it": (
        (
            "decoding",
            ["count(in_features.shape[-2])"],
            "Expected the number of tokens in the cache, 4; found 0. This call passes nothing for `past`.",
        ),
        above("def run_decoding", "def count(length, past=0):\n    return torch.arange(past, past + length)"),
        ("past + torch.arange(", "count("),
    ),
    "queries that are rotated twice, which only another name shows, beside a wrong mask": (
        (
            MULTIHEAD,
            [ABOVE, "q"],
            "With the causal mask here, 8 of the 20 failing tests pass.",
            "With another name here, too, all 20 failing tests pass.",
        ),
        above("def run_rope", SPIN),
        ("lambda x: rotation(x, positions)", "(rotation.cos[positions], rotation.sin[positions])"),
        (TURNS, "q = spin(q, *turn)\n        k = spin(q, *turn)"),
        (TRIANGLE, f"mask = {ABOVE}"),
    ),
    "two mistakes in a table": (
        ("rope", ["-torch.arange(0, d, 2, dtype=torch.float64) / (d // 2)", FROM_1]),
        ("float64) / d)", "float64) / (d // 2))"),
        ("torch.arange(longest, dtype=torch.float64)", FROM_1),
    ),
    # Each run begins with an empty table: otherwise only the first one would show how it is made.
    "a table that is kept, where it is made wrongly": (
        ("rope", ["theta ** (torch.arange(0, d, 2, dtype=torch.float64) / d)"]),
        (KEPT, KEPT_WRONGLY),
    ),
    "the key of a table that takes many lines to make": (("rope", ["d, longest"]), (KEPT, KEPT_IN_LISTS)),
    "the key of a cache with a name": (
        ("rope", ["d, len(angles)"], SHARED_KEY, "With `theta` in the key, the failing test passes."),
        (TABLES, CACHE.format("    key = d, len(angles)\n", "key", "[key]", "[key]")),
    ),
    "the key of a cache that `get` reads": (
        ("rope", ["d, len(angles)"], SHARED_KEY, "With `theta` in the key, the failing test passes."),
        (TABLES, CACHE.format("    key = d, len(angles)\n", "key", "[key]", ".get(key)")),
    ),
    "the key of a cache without a name": (
        ("rope", ["(d, len(angles))"], SHARED_KEY, "With `theta` in the key, the failing test passes."),
        (TABLES, CACHE.format("", "(d, len(angles))", "[(d, len(angles))]", ".get((d, len(angles)))")),
    ),
    "the key of a cache that gets a name where it is looked for": (
        ("rope", ["(d, len(angles))"], SHARED_KEY, "With `theta` in the key, the failing test passes."),
        (TABLES, CACHE.format("", "(key := (d, len(angles)))", "[key]", ".get(key)")),
    ),
    "what an earlier call left, where it is read": (
        ("rope", ["_TABLES[d]"], "This value is left over from an earlier call. Run first, the test passes."),
        (TABLES, CACHE.format("", "d", "[d]", "[d]")),
        *WITHOUT_THETA,
    ),
    "what an earlier call left, where `get` reads it": (
        ("rope", ["_TABLES.get(d)"], "This value is left over from an earlier call. Run first, the test passes."),
        (TABLES, CACHE.format("", "d", "[d]", ".get(d)")),
        *WITHOUT_THETA,
    ),
    "axes of a table that is made wrongly, and not where rows are taken": (
        ("rope", ["torch.stack(rows, -1)"], f"Line 45 takes rows of this: `{TAKEN_ROWS}`. Expected the rotations; "),
        (TABLES, STACKS),
        (CALLED, BY_MATRIX),
    ),
    "axes of what a helper makes, and not where it is converted": (
        ("rope", [STACKED], "Line 48 uses this: `self.rows(positions).to(x.dtype)`. Expected the rotations; "),
        (CALLED, MATRICES.format(axis=1, pattern=f'"{APPLIED}"')),
    ),
    "a table that several calls of a test read, where it is named": (
        ("decoding", ["TABLES"], "It is kept in `TABLES`."),
        above("class Rotation:", "TABLES = {}"),
        ("= angles.cos(), angles.sin()", "= TABLES.setdefault(d, (angles.cos(), angles.sin()))"),
    ),
    "rows that are right for one use alone": (
        ("decoding", ["rows"]),
        (f"past + {NEW}", f"None\n    rows = {NEW}    positions = past + rows\n"),
        ("rotation(k, positions)\n    if keys", "rotation(k, rows)\n    if keys"),
    ),
    "positions that are counted wrongly, and not the axis that they get": (
        ("decoding", ["torch.arange(in_features.shape[-2])"]),
        (TURNED, f"rows = {NEW}    rows = rows[None, :]\n    q, k = rotation(q, rows), rotation(k, rows)"),
    ),
    "heads that are repeated as a whole, and not where they are reshaped": (
        ("decoding", [WIDE], f"Line 115 reshapes this: `{RESHAPED}`. "),
        above("def run_decoding", f"def repeat(x, group):\n    wide = {WIDE}\n    return {RESHAPED}"),
        (SHARED, "repeat(k, group), repeat(v, group)"),
    ),
    "an index of heads": (
        ("decoding", ["torch.arange(num_heads) % num_kv_heads"]),
        (f"    heads = {CALL}q, k.r", f"    own = torch.arange(num_heads) % num_kv_heads\n    heads = {CALL}q, k.r"),
        (SHARED, "k[..., own, :, :], v[..., own, :, :]"),
    ),
    "an index of heads in a helper, and not where rows are taken": (
        ("decoding", ["torch.arange(num_heads) % x.shape[-3]"]),
        above("def run_decoding", SHARE),
        (SHARED, "share(k, num_heads), share(v, num_heads)"),
    ),
    "a slice with a name": ((MULTIHEAD, ["slice(i, None, num_heads)"], "With this corrected, "), (BY_HEADS, COLUMNS)),
    "the maximum of one block that is kept as that of all": ((BLOCKWISE, ["peak"]), *PEAK),
    "a sum in place that does not shrink": (
        (BLOCKWISE, [f"weighted += {ADDED}"]),
        ("weighted = shrink * weighted + e @ V", "weighted += e @ V"),
    ),
    "a sum that does not shrink, and not minus infinity as an initial value": (
        (BLOCKWISE, ["total + e.sum(-1, keepdim=True)"]),
        ("torch.full((*batch, q.shape[-2], 1), -1e30, dtype=wide)", "torch.tensor(-math.inf, dtype=wide)"),
        ("total = torch.zeros_like(largest)", "total = torch.zeros((*batch, q.shape[-2], 1), dtype=wide)"),
        ("shrink, e = ", "base = largest.masked_fill(largest == -math.inf, 0.0)\n            shrink, e = "),
        FROM_BASE,
        ("shrink * total + e.sum", "total + e.sum"),
    ),
    # With only one block the answer is 0, whatever the scale is.
    "a scale that makes much right, and then the repair of a factor": (
        (
            BLOCKWISE,
            ["math.sqrt(d_k)", "weighted + shrink * (e @ V[..., j : j + size, :].to(wide))"],
            "With a factor here on the other term, too, ",
        ),
        ("d_k = Q.shape[-1]", "d_k = K.shape[-1] - 1"),
        ("shrink * weighted + e @ V", "weighted + shrink * (e @ V"),
        ("to(wide)\n        answers.append", "to(wide))\n        answers.append"),
    ),
    "a sum in a loop, and not the one call in which it runs": (
        (BLOCKWISE, ["weighted + e @ V[..., j : j + size, :].to(wide)"]),
        (BLOCKS, f"{BLOCKS}    return attend(Q, K, V, mask, block_size)\n\n\ndef attend{BLOCKS[BLOCKS.index('(') :]}"),
        ("shrink * weighted + e", "weighted + e"),
    ),
    "an axis in a partial with a name": (
        (ATTENTION, ["functools.partial(run_softmax, dim=-2)"], "Line 32 uses this: `weigh(scores_of("),
        ("import math\n", "import functools\nimport math\n"),
        above("def scores_of", "weigh = functools.partial(run_softmax, dim=-2)"),
        (WEIGHTS, "weights = weigh(scores_of(Q.to(wide), K.to(wide), mask))"),
    ),
    # With any large number for the 4, nothing has to be added up.
    "a sum, and not a size that makes one block of all": (
        (ATTENTION, ["weighted"]),
        (BODY, "    return run_blockwise_attention(Q, K, V, mask, 4)\n"),
        ("shrink * weighted", "weighted"),
    ),
    "a sum in place, and not what is changed in place before it, which loses no digits": (
        (BLOCKWISE, ["weighted"]),
        ("-1e30, dtype=wide)", "-math.inf, dtype=wide)"),
        ("largest, scores.amax(", "largest, scores.detach().amax("),
        ("shrink, e = ", "base = largest.clone()\n            base[base == -math.inf] = 0.0\n            shrink, e = "),
        FROM_BASE,
        ("weighted = total * V", "weighted = total.clone() * V"),
        ("total = shrink * total + e.sum(-1, keepdim=True)", "total.mul_(shrink).add_(e.sum(-1, keepdim=True))"),
        (f"weighted = shrink * weighted + {ADDED}", f"weighted.add_({ADDED})"),
    ),
    "a sum, and not a default size that could be larger as well": (
        (MULTIHEAD, ["weighted"], "With one more factor in this term, "),
        ("run_blockwise_attention(Q, K, V, mask=None, block_size=None)", "attend(Q, K, V, mask, block_size=4)"),
        (HEADS, "heads = attend(q, k, v, mask)"),
        ("shrink * weighted", "weighted"),
    ),
}


@pytest.mark.parametrize(("case", "edits"), [(case, edits) for case, *edits in CASES.values()], ids=CASES)
def test_what_is_wrong_is_marked(find_alone: Explain, case: Case, edits: list[tuple[str, str]]) -> None:
    problem, marks, *told = case
    found = find_alone(problem, *edits)
    lines = [line for each in found for line in (*each.said, each.proof)]
    assert [marked(each) if each.file else each.id for each in found] == marks
    assert all(any(line.startswith(sentence) for line in lines) for sentence in told), lines
