"""What is told of code as it is really written: values inside `vmap`, constants, names that are swapped."""

import pytest

from staff.tests.locate.conftest import RIGHT, Explain, above
from staff.tests.locate.test_calls import MULTIHEAD, SPLIT, list_marks

ATTENTION = "scaled_dot_product_attention"
HEADS = "heads = run_scaled_dot_product_attention(q, k, v, mask)"
CAUSAL = "torch.ones(length, length, dtype=torch.bool).tril()"
ADDED = "torch.zeros(mask.shape).masked_fill(~mask, -1e9)"
PROJECTIONS = f"q, k, v = ({SPLIT})"
TURN = RIGHT[RIGHT.index("        cos, sin = self") : RIGHT.index("\n\ndef run_rope")]
TABLES = "        self.cos, self.sin = angles.cos(), angles.sin()\n"
MAPPED = """def one(q, k, v):
        scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
        weights = run_softmax(scores.masked_fill(~mask, -math.inf), -1)
        return weights @ v
    heads = torch.vmap(one)(*(x.flatten(0, -3) for x in (q, k, v))).view(q.shape)"""
BY_LOGARITHM = (
    RIGHT[RIGHT.index("    largest = x.amax(dim, keepdim=True)") : RIGHT.index("\n\ndef scores_of")],
    "    return torch.exp(x - torch.logsumexp(x, dim, keepdim=True)).to(in_features.dtype)\n",
)
WINDOWED = (
    "    mask = distance >= 0\n    if window is not None:\n        mask = mask & (distance < window)\n",
    """    table = torch.ones(99, 99).tril()
    if window is not None:
        table = table.triu(-2 * window)
    mask = table[past : k.shape[-2], : k.shape[-2]] == 1
""",
)
ROTATION_INLINE = (
    "    rotation = Rotation(d_model // num_heads, theta, max_seq_len)\n",
    """    d, config = d_model // num_heads, {"theta": 10000.0, "given": theta}
    base = config["theta"]
    frequencies = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.arange(max_seq_len, dtype=torch.float64)[:, None] * frequencies
    table = torch.stack((angles.cos(), angles.sin())).to(in_features.dtype)

    def rotation(x, positions):
        cos, sin = table[:, positions]
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)

""",
)
PROJECTED = """q = x @ weights[0]
    k = x @ weights[1]
    v = x @ weights[2]
    q, k, v = (rearrange(each, "... n (h d) -> ... h n d", h=num_heads) for each in (q, k, v))"""


def test_a_mask_is_marked_where_its_numbers_are_made(find_alone: Explain) -> None:
    """Not at the slice, nor at the comparison, which only write the same two numbers another way."""
    (finding,) = find_alone("decoding", WINDOWED)
    assert list_marks([finding]) == ["table.triu(-2 * window)"]
    words = (
        "makes a mask of this: `table[past : k.shape[-2], : k.shape[-2]] == 1`. Expected the mask; found the mask of"
    )
    assert words in finding.said[0]


def test_a_mask_that_is_inverted_as_an_index_is_marked_where_it_is_inverted(find_alone: Explain) -> None:
    """Not in the adapter, which passes on what it gets."""
    taken = """        taken = ~mask.expand(scores.shape)
        hidden = torch.full_like(scores, -math.inf)
        hidden[taken] = scores[taken]
        scores = hidden
"""
    (finding,) = find_alone(ATTENTION, ("        scores = scores.masked_fill(~mask, -math.inf)\n", taken))
    assert list_marks([finding]) == ["~mask.expand(scores.shape)"]
    assert finding.said == ("Expected the mask; found the mask, inverted.",)


def test_a_step_that_is_missing_is_marked_where_a_value_is_only_handed_on(find_alone: Explain) -> None:
    handed = (
        "        scores = scores.masked_fill(~mask,",
        "        hides = mask.bool()\n        scores = scores.masked_fill(hides,",
    )
    (finding,) = find_alone(ATTENTION, handed)
    assert finding.code[-2:] == ("    hides = mask.bool()", "            ^^^^")


def test_a_factor_of_1_is_marked_in_place_of_what_it_leaves_as_it_is(find_alone: Explain) -> None:
    scores = 'einsum(Q, K, "... q d, ... k d -> ... q k")'
    factor = (f"    scores = {scores} / math.sqrt(d_k)", f"    one = (d_k // d_k) ** -0.5\n    scores = {scores} * one")
    (finding,) = find_alone(ATTENTION, factor)
    assert list_marks([finding]) == ["(d_k // d_k) ** -0.5"]


def test_a_mistake_inside_vmap_is_marked(find_alone: Explain) -> None:
    (finding,) = find_alone(MULTIHEAD, (HEADS, MAPPED), (" / q.shape[-1] ** 0.5", ""))
    assert list_marks([finding]) == ['torch.einsum("...qd,...kd->...qk", q, k)']
    assert finding.said == ("Expected the scaled scores; found the scores.",)
    assert finding.proof == "With the scaled scores here, all 19 failing tests pass."


def test_a_constant_in_the_place_of_a_number_of_the_adapter_is_told(find_alone: Explain) -> None:
    (finding,) = find_alone(MULTIHEAD, ROTATION_INLINE)
    assert list_marks([finding]) == ['config["theta"]']
    assert finding.said == ("Expected `theta`, 100; found 10000.",)
    assert finding.question == "How does this number come from the adapter to this line?"


def test_two_names_that_are_swapped_are_told_together(find_alone: Explain) -> None:
    (finding,) = find_alone(MULTIHEAD, ("q, k, v = (", "q, v, k = ("))
    assert list_marks([finding]) == ["v"]
    assert finding.said == ("Expected the values of each head; found the keys of each head: the two are swapped.",)


def test_one_mistake_in_four_places_is_told_in_all_of_them(find_alone: Explain) -> None:
    found = find_alone(MULTIHEAD, (PROJECTIONS, PROJECTED), ("@ weights[3].T", "@ weights[3]"))
    assert list_marks(found) == ["x @ weights[0]", 'rearrange(heads, "... h n d -> ... n (h d)") @ weights[3]']
    assert found[0].likewise == tuple(found[0].line + i for i in (1, 2))
    assert found[1].proof == "With all of these corrected, all 22 failing tests pass."


def test_a_step_too_many_for_the_values_is_told_where_it_is_called(find_alone: Explain) -> None:
    found = find_alone(MULTIHEAD, ("q, k = turn(q), turn(k)", "q, k, v = turn(q), turn(k), turn(v)"))
    assert list_marks(found) == ["turn(v)"]
    assert "this step should not be here" in found[0].said[0]


@pytest.mark.parametrize("kept", ["_TABLES[d]", "_TABLES.get(d)"])
def test_what_an_earlier_call_left_is_marked_where_it_is_read(find_alone: Explain, kept: str) -> None:
    cache = (
        TABLES,
        f"        self.table = find_table(d, angles)\n        self.cos, self.sin = self.table\n\n"
        "_TABLES = {}\n\n"
        "def find_table(d, angles):\n"
        "    if d not in _TABLES:\n"
        "        _TABLES[d] = torch.stack((angles.cos(), angles.sin()))\n"
        f"    return {kept}\n\n"
        "class Rotation(Rotation):\n",
    )
    (finding,) = find_alone("rope", cache)
    assert list_marks([finding]) == [kept]
    assert finding.said[0] == "This value is left over from an earlier call. Run first, the test passes."


def test_a_table_that_is_kept_is_marked_where_it_is_made_wrongly(find_alone: Explain) -> None:
    """Each run begins with an empty table: otherwise only the first one would show how it is made."""
    made = (
        "    frequencies = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)\n"
        "    angles = torch.arange(longest, dtype=torch.float64)[:, None] * frequencies\n"
    )
    cache = f"""        if (d, theta, longest) not in _TABLES:
            _TABLES[d, theta, longest] = make_table(d, theta, longest)
        self.cos, self.sin = _TABLES[d, theta, longest]

_TABLES = {{}}

def make_table(d, theta, longest):
{made.replace("-torch", "torch")}    return angles.cos(), angles.sin()

class Rotation(Rotation):
"""
    inner = made.replace("    f", "        f").replace("    a", "        a")
    (finding,) = find_alone("rope", (inner + TABLES, cache))
    assert list_marks([finding]) == ["theta ** (torch.arange(0, d, 2, dtype=torch.float64) / d)"]


@pytest.mark.parametrize(
    ("line", "asked", "kept", "read", "mark"),
    [
        ("    key = d, len(angles)\n", "key", "[key]", "[key]", "d, len(angles)"),
        ("    key = d, len(angles)\n", "key", "[key]", ".get(key)", "d, len(angles)"),
        ("", "(d, len(angles))", "[(d, len(angles))]", ".get((d, len(angles)))", "(d, len(angles))"),
        ("", "(key := (d, len(angles)))", "[key]", ".get(key)", "(d, len(angles))"),
    ],
)
def test_the_key_of_a_cache_is_marked_wherever_it_stands_if_another_name_belongs_in_it(
    find_alone: Explain, line: str, asked: str, kept: str, read: str, mark: str
) -> None:
    cache = (
        TABLES,
        "        self.cos, self.sin = find_table(d, theta, angles)\n\n"
        "_TABLES = {}\n\n"
        f"def find_table(d, theta, angles):\n{line}"
        f"    if {asked} not in _TABLES:\n"
        f"        _TABLES{kept} = torch.stack((angles.cos(), angles.sin()))\n"
        f"    return _TABLES{read}\n\n"
        "class Rotation(Rotation):\n",
    )
    (finding,) = find_alone("rope", cache)
    assert list_marks([finding]) == [mark]
    assert finding.said[0].startswith("Calls that need different values share this key")
    assert finding.proof == "With `theta` in the key, the failing test passes."


def test_the_key_of_a_table_that_takes_many_lines_to_make_is_marked(find_alone: Explain) -> None:
    made = (
        "        frequencies = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)\n"
        "        angles = torch.arange(longest, dtype=torch.float64)[:, None] * frequencies\n" + TABLES
    )
    cache = """        self.cos, self.sin = find_table(d, theta, longest)

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
    (finding,) = find_alone("rope", (made, cache))
    assert list_marks([finding]) == ["d, longest"]


def test_what_is_kept_is_marked_where_it_is_named_if_several_calls_of_a_test_read_it(find_alone: Explain) -> None:
    (finding,) = find_alone(
        "decoding",
        above("class Rotation:", "TABLES = {}"),
        ("= angles.cos(), angles.sin()", "= TABLES.setdefault(d, (angles.cos(), angles.sin()))"),
    )
    assert list_marks([finding]) == ["TABLES"]
    assert finding.said[1] == "It is kept in `TABLES`."


def test_what_is_wrong_in_one_of_several_calls_is_marked_where_it_is_passed(find_alone: Explain) -> None:
    split = """def split(t):
        return rearrange(t, "... n (h d) -> ... h n d", h=num_heads)
    q, k, v = split(x @ weights[0].T), split(x @ weights[1].T), split(x @ weights[1].T)"""
    (finding,) = find_alone(MULTIHEAD, (PROJECTIONS, split))
    assert (list_marks([finding]), finding.line) == (["x @ weights[1].T"], 59)
    assert finding.said == ("Expected the values; found the keys.",)


def test_a_number_that_others_could_replace_as_well_is_not_told(find_alone: Explain) -> None:
    """The last block of keys is left out unless it is full: a bound that is d_k, by chance, takes in enough of them."""
    left_out = ("for j in range(0, keys, size):", "for j in range(0, keys - size + 1, size):")
    assert not [each.said for each in find_alone("blockwise_attention", left_out) if "d_k" in each.said[0]]


def test_two_slices_that_are_swapped_are_told_together(find_alone: Explain) -> None:
    """One projection for all three: also where the wrong one of them is rotated after that."""
    fused = """d, fused = x.shape[-1], x @ torch.cat(weights[:3]).T
    q = rearrange(fused[..., :d], "... n (h d) -> ... h n d", h=num_heads)
    k = rearrange(fused[..., 2 * d :], "... n (h d) -> ... h n d", h=num_heads)
    v = rearrange(fused[..., d : 2 * d], "... n (h d) -> ... h n d", h=num_heads)"""
    (finding,) = find_alone(MULTIHEAD, (PROJECTIONS, fused))
    assert list_marks([finding]) == ["fused[..., 2 * d :]"]
    assert finding.said == ("Expected the keys; found the values: the two are swapped.",)
    assert finding.likewise == (finding.line + 1,)


def test_a_helper_that_is_right_in_one_of_its_calls_is_marked_where_it_is_called_wrongly(find_alone: Explain) -> None:
    split = """def split(t, w):
        return rearrange(t @ w.T, "... n (h d) -> ... h n d", h=num_heads)
    q = split(x, weights[0])
    k = split(x, weights[2])
    v = split(x, weights[0])"""
    (finding,) = find_alone(MULTIHEAD, (PROJECTIONS, split))
    assert list_marks([finding]) == ["weights[2]"]
    assert finding.likewise == (finding.line + 1,)


@pytest.mark.parametrize(
    ("wrong", "mark"), [("d_k", "d_k"), ("K.shape[-2]", "K.shape[-2]"), ("(d_k := K.shape[-2])", "K.shape[-2]")]
)
def test_a_size_without_its_root_is_marked_where_it_is_used_and_a_wrong_one_where_it_is_read(
    find_alone: Explain, wrong: str, mark: str
) -> None:
    root = "math.sqrt(d_k)"
    (finding, *_) = find_alone(ATTENTION, (root, wrong if wrong == "d_k" else f"math.sqrt({wrong})"))
    assert list_marks([finding]) == [mark]


def test_two_mistakes_in_one_function_are_found_though_wrong_values_make_it_raise(find_alone: Explain) -> None:
    """Many checkpoints have the shape of what is rotated; with most of them in all three places, a line raises."""
    rotated = (
        "q, k = rotation(q, positions), rotation(k, positions)",
        "q, k, v = (rotation(x, positions) for x in (q, k, v))",
    )
    found = find_alone("decoding", rotated, ('(h d)") @ o_proj', '(d h)") @ o_proj'))
    assert list_marks(found) == ["rotation(x, positions)", 'rearrange(heads, "... h n d -> ... n (d h)")']
    assert found[1].proof == "With these two corrected, all 21 failing tests pass."


def test_a_wrong_scale_and_a_mask_that_is_not_used_are_told_apart(find_alone: Explain) -> None:
    """The masked, scaled scores in place of the scaled ones would make up for both."""
    helpers = """def scale(scores, size):
    return scores / math.sqrt(size)


def weigh(scores):
    blind = scores.eq(-math.inf).all(-1, keepdim=True)
    return run_softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)


def scores_of"""
    attend = """scaled = scale(Q.to(wide) @ K.to(wide).mT, K.shape[-2])
    scores = scaled if mask is None else scaled + torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    weights = weigh(scaled)"""
    plain = "weights = run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)"
    found = find_alone(ATTENTION, ("def scores_of", helpers), (plain, attend))
    assert list_marks(found) == ["K.shape[-2]", "scaled"]
    assert found[0].said == ("Expected d_k, 11; found 7.",)


def test_a_second_mistake_is_repaired_beside_the_first(find_alone: Explain) -> None:
    """The queries are rotated twice: that is right in every step, and only another name shows what is wrong."""
    spin = """def spin(x, cos, sin):
    cos, sin = (each.to(x.dtype).expand(*x.shape[:-1], -1) for each in (cos, sin))
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)


def run_rope"""
    spun = ("lambda x: rotation(x, positions)", "(rotation.cos[positions], rotation.sin[positions])")
    turned = ("q, k = turn(q), turn(k)", "q = spin(q, *turn)\n        k = spin(q, *turn)")
    first, second = find_alone(MULTIHEAD, ("def run_rope", spin), spun, turned, (".tril()\n", ".tril(1)\n"))
    assert list_marks([first, second]) == [CAUSAL.replace(".tril()", ".tril(1)"), "q"]
    assert first.proof == "With the causal mask here, 8 of the 20 failing tests pass."
    assert second.proof == "With another name here, too, all 20 failing tests pass."


def test_a_mask_that_is_cut_out_of_a_larger_table_is_marked_there(find_alone: Explain) -> None:
    """The proof puts the mask at the beginning of the table, of which each call takes as much as it needs."""
    cut = (
        f"    mask = {CAUSAL}",
        "    table = torch.ones(max(length, 7), 7).tril(1)\n    mask = table[:length, :length] == 1",
    )
    (finding,) = find_alone(MULTIHEAD, cut)
    assert list_marks([finding]) == ["torch.ones(max(length, 7), 7).tril(1)"]


def test_two_mistakes_of_one_function_are_known_where_it_is_called(find: Explain) -> None:
    """The second one is in what a closure is made with: no value shows that place."""
    closure = "make = lambda axis: lambda x: torch.exp(x - x.logsumexp(axis, keepdim=True).clamp_min(-1e30))"
    scores = "scores_of(Q.to(wide), K.to(wide), mask)"
    weigh, size = (f"run_softmax({scores}, -1)", f"make(-2)({scores})"), ("d_k = Q.shape[-1]", "d_k = Q.shape[-2]")
    *found, later = find([ATTENTION, MULTIHEAD], above("def scores_of", closure), weigh, size)
    assert list_marks(found) == ["Q.shape[-2]", "-2"]
    assert found[1].proof == "With one more or one less here, too, all 35 failing tests pass."
    assert later.is_of_earlier


def test_a_wrong_mask_beside_swapped_values_is_the_first_of_two_mistakes(find_alone: Explain) -> None:
    """The heads' answers in place of what attention returns would make up for both."""
    swapped, cut = ("q, k, v = (", "q, v, k = ("), (CAUSAL, CAUSAL.replace(".tril()", ".tril(-1)"))
    first, second = find_alone(MULTIHEAD, swapped, cut)
    assert list_marks([first, second]) == [cut[1], "q, v, k"]
    assert second.proof == "With another order here, too, all 22 failing tests pass."


def test_one_change_is_marked_in_place_of_two_values(find_alone: Explain) -> None:
    largest = ("    largest = x.amax(dim,", "    axis = -1\n    largest = x.amax(axis,")
    (finding,) = find_alone("softmax", largest, ("e.sum(dim,", "e.sum(axis,"))
    assert list_marks([finding]) == ["-1"]
    assert finding.proof == "With another name here, all 6 failing tests pass."


def test_a_number_next_to_which_others_do_as_well_is_no_second_mistake(find_alone: Explain) -> None:
    """Any step that is longer than the sequence makes up for the rows of the mask that are taken wrongly."""
    rows = """def in_rows(q, k, mask, step=4):
    size = q.shape[-2]
    if mask is None:
        return scores_of(q, k, None)
    mask = mask.expand(*mask.shape[:-2], size, k.shape[-2])
    starts = range(0, size, step)
    return torch.cat([scores_of(q[..., i : i + step, :], k, mask[..., : min(step, size - i), :]) for i in starts], -2)


def run_scaled"""
    called = ("scores_of(Q.to(wide), K.to(wide), mask), -1)", "in_rows(Q.to(wide), K.to(wide), mask), -1)")
    found = find_alone(ATTENTION, ("def run_scaled", rows), called, ("d_k = Q.shape[-1]", "d_k = K.shape[-2]"))
    assert list_marks(found) == ["K.shape[-2]", "..., : min(step, size - i), :"]


def test_a_table_with_wrong_axes_is_marked_where_it_is_made_and_not_where_rows_are_taken(find_alone: Explain) -> None:
    rows = "torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)"
    table = f"        rows = {rows}\n        self.table = torch.stack(rows, -1)\n"
    turn = """        turn = self.table[positions].to(x.dtype)
        return (turn @ x.unflatten(-1, (-1, 2)).unsqueeze(-1)).flatten(-3)
"""
    kept = (TABLES, f"        cos, sin = angles.cos(), angles.sin()\n{table}")
    (finding,) = find_alone("rope", kept, (TURN, turn))
    assert list_marks([finding]) == ["torch.stack(rows, -1)"]
    assert " takes rows of this: `self.table[positions].to(x.dtype)`. Expected the rotations; " in finding.said[0]


def test_a_lambda_in_a_table_of_functions_is_followed(find_alone: Explain) -> None:
    table = above("def run_softmax", 'STEPS = {"sum": lambda x, dim: x.sum(-1, keepdim=True)}')
    (finding,) = find_alone("softmax", table, ("e.sum(dim, keepdim=True)", 'STEPS["sum"](e, dim)'))
    assert list_marks([finding]) == ["x.sum(-1, keepdim=True)"]
    assert finding.function == "<lambda>"


def test_two_mistakes_in_a_table_are_marked_where_it_is_made(find_alone: Explain) -> None:
    frequencies = ("float64) / d)", "float64) / (d // 2))")
    found = find_alone("rope", frequencies, ("torch.arange(longest, dtype", "torch.arange(1, longest + 1, dtype"))
    assert list_marks(found) == [
        "-torch.arange(0, d, 2, dtype=torch.float64) / (d // 2)",
        "torch.arange(1, longest + 1, dtype=torch.float64)",
    ]


def test_a_mask_is_marked_where_a_triangle_is_cut_out_of_it(find_alone: Explain) -> None:
    wrong = "torch.ones_like(x @ x.mT, dtype=torch.bool).tril(-1)"
    (finding,) = find_alone(MULTIHEAD, (CAUSAL, wrong))
    assert list_marks([finding]) == [wrong]


def test_a_mask_with_its_axes_exchanged_is_another_mask(find_alone: Explain) -> None:
    cut = "torch.triu(torch.ones(1, length, length))"
    (finding,) = find_alone(MULTIHEAD, (CAUSAL, f"{cut} == 0"))
    assert list_marks([finding]) == [cut]
    assert finding.said == ("Expected the causal mask, inverted; found 1 on the diagonal, where 0 belongs.",)


@pytest.mark.parametrize(("made", "hides"), [("", "triangle == 0"), (", dtype=torch.bool", "~triangle")])
def test_a_triangle_of_ones_that_have_a_name_is_marked(find_alone: Explain, made: str, hides: str) -> None:
    ones = f"    ones = torch.ones(length, length{made})\n    triangle = torch.triu(ones)\n"
    (finding,) = find_alone(MULTIHEAD, (f"    mask = {CAUSAL}", f"{ones}    mask = {hides}"))
    assert list_marks([finding]) == ["torch.triu(ones)"]
    assert finding.proof == "With the causal mask, inverted here, all 22 failing tests pass."


def test_a_table_of_numbers_is_marked_in_place_of_what_is_computed_from_it(find_alone: Explain) -> None:
    pairs = "torch.arange(1, d // 2 + 1, dtype=torch.float64)"
    powers = ("theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)", "theta ** (-2 * pairs / d)")
    (finding,) = find_alone(
        "rope", ("        frequencies = ", f"        pairs = {pairs}\n        frequencies = "), powers
    )
    assert list_marks([finding]) == [pairs]
    assert finding.said == ("Expected the numbers of the pairs; found that value plus 1.",)


@pytest.mark.parametrize(
    ("low", "mark"),
    [
        ("scores.masked_fill(~mask, -1e9)", "scores.masked_fill(~mask, -1e9)"),
        ("torch.where(mask, scores, -1e9)", "torch.where(mask, scores, -1e9)"),
        (f"scores + {ADDED}", ADDED),
        (f"scores + (lambda mask: {ADDED})(mask).to(scores.dtype)", ADDED),
    ],
)
def test_a_low_number_in_place_of_infinity_is_marked_where_it_is_put(find_alone: Explain, low: str, mark: str) -> None:
    kept = ("return scores", "return torch.where(scores > 9e9, 0, scores)")
    assert list_marks(find_alone(ATTENTION, ("scores.masked_fill(~mask, -math.inf)", low), kept))[0] == mark


def test_a_low_number_with_a_name_is_marked_where_it_is_made(find_alone: Explain) -> None:
    low = "low = torch.finfo(torch.float16).min\n        scores = torch.where(mask, scores, low)"
    (finding,) = find_alone(ATTENTION, ("scores = scores.masked_fill(~mask, -math.inf)", low))
    assert list_marks([finding]) == ["torch.finfo(torch.float16).min"]
    assert finding.said[0].startswith(
        "Line 23 uses this: `torch.where(mask, scores, low)`. Expected the masked, scaled"
    )


def test_a_constant_at_the_top_of_a_file_is_marked_there(find_alone: Explain) -> None:
    low = ("import math\n", "import math\n\nLOW = -1e9\n")
    (finding,) = find_alone(ATTENTION, low, ("masked_fill(~mask, -math.inf)", "masked_fill(~mask, LOW)"))
    assert list_marks([finding]) == ["-1e9"]
    assert finding.function == "<module>"
    pattern = ("import math\n", 'import math\n\nSPLIT = "... n (d h) -> ... h n d"\n')
    split = (
        'rearrange(x @ w.T, "... n (h d) -> ... h n d", h=num_heads) for',
        "rearrange(x @ w.T, SPLIT, h=num_heads) for",
    )
    (finding,) = find_alone(MULTIHEAD, pattern, split)
    assert list_marks([finding]) == ['"... n (d h) -> ... h n d"']


def test_heads_that_are_repeated_as_a_whole_are_marked_where_they_are_and_not_where_they_are_reshaped(
    find_alone: Explain,
) -> None:
    repeat = """def repeat(x, group):
    wide = x.unsqueeze(-4).expand(*x.shape[:-3], group, *x.shape[-3:])
    return wide.reshape(*x.shape[:-3], -1, *x.shape[-2:])"""
    called = ("k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)", "repeat(k, group), repeat(v, group)")
    (finding,) = find_alone("decoding", above("def run_decoding", repeat), called)
    assert list_marks([finding]) == ["x.unsqueeze(-4).expand(*x.shape[:-3], group, *x.shape[-3:])"]
    assert finding.said[0].startswith("Line 115 reshapes this: `wide.reshape(*x.shape[:-3], -1, *x.shape[-2:])`. ")


def test_a_step_that_a_helper_lacks_is_marked_in_the_helper(find_alone: Explain) -> None:
    helper = """def boltzmann(energy):
    e = torch.exp(energy.amin(-1, keepdim=True) - energy)
    return e / e.sum(-1, keepdim=True)


def weights_of(q, k, mask):
    energy = -scores_of(q, k, None)
    if mask is not None:
        energy = energy.masked_fill(~mask & mask.any(-1, keepdim=True), math.inf)
    weights = boltzmann(energy)
    return weights"""
    called = ("run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)", "weights_of(Q.to(wide), K.to(wide), mask)")
    (finding,) = find_alone(ATTENTION, above("def run_scaled", helper), called)
    assert list_marks([finding]) == ["boltzmann(energy)"]
    assert " returns this: `weights_of(Q.to(wide), K.to(wide), mask)`. Expected the weights; " in finding.said[0]


def test_a_repair_of_all_tests_is_told_in_place_of_a_value_that_explains_some(find_alone: Explain) -> None:
    lonely = above("def run_scaled", "def lonely(mask):\n    return mask.sum(-2, keepdim=True) == 0")
    plain = ("    largest = torch.where(largest == -math.inf, 0.0, largest)\n", "")
    weights = """none = torch.tensor(False) if mask is None else lonely(mask)
    hidden = scores_of(Q.to(wide), K.to(wide), None if mask is None else mask | none)
    weights = torch.where(none, 0.0, run_softmax(hidden, -1))"""
    found = find_alone(
        ATTENTION, lonely, plain, ("weights = run_softmax(scores_of(Q.to(wide), K.to(wide), mask), -1)", weights)
    )
    assert list_marks(found) == ["-2"]


def test_a_comparison_that_a_helper_gets_is_marked_where_it_is_passed(find_alone: Explain) -> None:
    table = "torch.tensor([[holds(i, j) for j in range(length)] for i in range(length)])"
    relate = above("def attend_by_heads", f"def relate(length, holds):\n    return {table}")
    (finding,) = find_alone(MULTIHEAD, relate, (CAUSAL, "relate(length, lambda i, j: i > j)"))
    assert list_marks([finding]) == ["i > j"]
    assert finding.proof == "With another comparison here, all 22 failing tests pass."


def test_a_parameter_that_is_read_several_times_is_marked_where_nothing_is_passed_for_it(find_alone: Explain) -> None:
    count = above("def run_decoding", "def count(length, past=0):\n    return torch.arange(past, past + length)")
    (finding,) = find_alone("decoding", count, ("past + torch.arange(", "count("))
    assert list_marks([finding]) == ["count(in_features.shape[-2])"]
    words = "Expected the number of tokens in the cache, 4; found 0. This call passes nothing for `past`."
    assert finding.said[0].endswith(words)


def test_an_index_that_is_made_wrongly_is_marked_where_it_is_made(find_alone: Explain) -> None:
    shared = "k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)"
    index = (
        "    heads = run_scaled_dot_product_attention(q, k.r",
        "    own = torch.arange(num_heads) % num_kv_heads\n    heads = run_scaled_dot_product_attention(q, k.r",
    )
    (finding,) = find_alone("decoding", index, (shared, "k[..., own, :, :], v[..., own, :, :]"))
    assert list_marks([finding]) == ["torch.arange(num_heads) % num_kv_heads"]


def test_the_line_that_computes_what_a_call_returns_is_told(find_alone: Explain) -> None:
    width = above("def scores_of", "def width(x):\n    return x.shape[-1]")
    (finding,) = find_alone(ATTENTION, width, ("math.sqrt(d_k)", "width(Q)"))
    assert finding.said == ("Expected √d_k; found d_k. Line 19 computes it: `x.shape[-1]`.",)


def test_of_a_call_over_several_lines_the_pattern_that_is_wrong_is_marked(find_alone: Explain) -> None:
    joined = (
        'rearrange(heads, "... h n d -> ... n (h d)") @ weights',
        'rearrange(\n        heads,\n        "... h n d -> ... n (d h)",\n    ) @ weights',
    )
    (finding,) = find_alone(MULTIHEAD, joined)
    assert list_marks([finding]) == ['"... h n d -> ... n (d h)"']


def test_a_step_that_the_code_takes_further_down_is_not_missing(find_alone: Explain) -> None:
    """The maximum is subtracted, but not within the sum."""
    log = """def log_softmax(x, dim):
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.logsumexp(x, dim, keepdim=True)"""
    start = RIGHT.index("    largest = x.amax")
    body = RIGHT[start : RIGHT.index("\n\n\ndef scores_of")]
    (finding,) = find_alone(
        "softmax", above("def run_softmax", log), (body, "    return log_softmax(x, dim).exp().to(in_features.dtype)")
    )
    assert list_marks([finding]) == ["x"]
    assert "    return shifted - torch.logsumexp(x, dim, keepdim=True)" in finding.code[1]


MATRICES = """    def rows(self, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -{axis})

    def __call__(self, x, positions):
        pairs = x.unflatten(-1, (-1, 2))
        return einsum(self.rows(positions).to(x.dtype), pairs, {pattern}).flatten(-2)"""
APPLIED = "... pairs out two, ... pairs two -> ... pairs out"
CALLED = RIGHT[RIGHT.index("    def __call__(self, x") : RIGHT.index("\n\n\ndef run_rope")]


def test_a_tensor_is_marked_where_a_helper_makes_it_and_not_where_it_is_converted(find_alone: Explain) -> None:
    (finding,) = find_alone("rope", (CALLED, MATRICES.format(axis=1, pattern=f'"{APPLIED}"')))
    assert list_marks([finding])[0].startswith("torch.stack((torch.stack((cos, -sin), -1), torch.stack(")
    assert " uses this: `self.rows(positions).to(x.dtype)`. Expected the rotations; " in finding.said[0]


def test_a_pattern_with_a_name_is_marked_where_all_that_it_gets_is_right(find_alone: Explain) -> None:
    turned = APPLIED.replace("out two,", "two out,")
    pattern = above("class Rotation", f'APPLIED = "{turned}"')
    (finding,) = find_alone("rope", pattern, (CALLED, MATRICES.format(axis=2, pattern="APPLIED")))
    assert list_marks([finding]) == [f'"{turned}"']


def test_positions_are_marked_where_they_are_counted_and_not_where_they_get_an_axis(find_alone: Explain) -> None:
    turned = "    q, k = rotation(q, {0}), rotation(k, {0})\n    if keys"
    rows = "    rows = torch.arange(in_features.shape[-2])\n    rows = rows[None, :]\n"
    (finding,) = find_alone("decoding", (turned.format("positions"), rows + turned.format("rows")))
    assert list_marks([finding]) == ["torch.arange(in_features.shape[-2])"]


def test_scores_that_are_transposed_since_two_names_are_exchanged_are_marked_at_the_names(find_alone: Explain) -> None:
    inline = """scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, -1e9)
    heads = run_softmax(scores, -1) @ v"""
    (finding,) = find_alone(MULTIHEAD, (PROJECTIONS, PROJECTIONS.replace("q, k, v", "k, q, v", 1)), (HEADS, inline))
    assert list_marks([finding]) == ["k"]
    assert finding.said == ("Expected the keys of each head; found the queries of each head: the two are swapped.",)


def test_one_name_may_be_another_one_in_a_whole_assignment(find_alone: Explain) -> None:
    turned = ("q, k = turn(q), turn(k)", "q, v = map(turn, (q, v))")
    first, second = find_alone(MULTIHEAD, turned, (".tril()\n", ".triu()\n"))
    assert list_marks([first, second]) == [CAUSAL.replace("tril", "triu"), "q, v = map(turn, (q, v))"]


def test_minus_infinity_is_an_initial_value(find_alone: Explain) -> None:
    begins = ("torch.full((*batch, q.shape[-2], 1), -1e30, dtype=wide)", "torch.tensor(-math.inf, dtype=wide)")
    zero = ("total = torch.zeros_like(largest)", "total = torch.zeros((*batch, q.shape[-2], 1), dtype=wide)")
    finite = (
        "shrink, e = torch.exp(before - largest), torch.exp(scores - largest)",
        """base = largest.masked_fill(largest == -math.inf, 0.0)
            shrink, e = torch.exp(before - base), torch.exp(scores - base)""",
    )
    found = find_alone("blockwise_attention", begins, zero, finite, ("shrink * total + e.sum", "total + e.sum"))
    assert list_marks(found[:1]) == ["total + e.sum(-1, keepdim=True)"]
    assert not any("inf" in mark for mark in list_marks(found))


PARTNERS = """    def __call__(self, x, positions):
        feature = torch.arange(x.shape[-1])
        partner = (feature + x.shape[-1] // 2) % x.shape[-1]
        cos, sin = (each[positions].repeat_interleave(2, -1).to(x.dtype) for each in (self.cos, self.sin))
        return x * cos + torch.where(feature % 2 == 0, -1.0, 1.0).to(x.dtype) * x[..., partner] * sin"""


def test_a_call_of_what_no_proof_explains_refers_to_it(find: Explain) -> None:
    found = find(["rope", MULTIHEAD], (CALLED, PARTNERS))
    assert [each.id for each in found if each.file] == ["rope-unproved"]
    assert found[-1].said[0].endswith(": look there first.")


def test_a_wrong_scale_is_told_beside_rows_that_are_not_set_to_0(find_alone: Explain) -> None:
    """The masked scores, put in place of the others, explain as much, but hide both mistakes."""
    attend = """    scores = einsum(Q.to(wide), K.to(wide), "... q d, ... k d -> ... q k") / math.sqrt(K.shape[-2])
    if mask is None:
        return (run_softmax(scores, -1) @ V.to(wide)).to(Q.dtype)
    seen = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & seen, -math.inf)
    return (run_softmax(scores, -1) @ V.to(wide)).to(Q.dtype)
"""
    body = RIGHT[RIGHT.index("    weights = run_softmax(scores_of") : RIGHT.index("\n\ndef run_linear")]
    first, second = find_alone(ATTENTION, (body, attend))
    assert list_marks([first]) == ["K.shape[-2]"]
    assert first.said == ("Expected d_k, 11; found 7.",)
    assert second.proof == "With a mask as one more factor here, too, all 30 failing tests pass."


def test_a_mistake_that_another_one_hides_in_most_tests_is_found_where_no_mask_is_passed(find_alone: Explain) -> None:
    gain = ("/ math.sqrt(d_k)", "* torch.tensor(d_k, dtype=Q.dtype).reciprocal()")
    found = find_alone(ATTENTION, gain, ("masked_fill(~mask,", "masked_fill(mask,"))
    assert list_marks(found) == ["d_k", "mask"]
    assert found[1].proof == "With these two corrected, all 36 failing tests pass."


def test_a_scale_that_makes_much_right_is_the_first_of_two_mistakes(find_alone: Explain) -> None:
    """The second one is repaired: with only one block the answer is 0, whatever the scale is."""
    factor = ("shrink * weighted + e @ V", "weighted + shrink * (e @ V")
    closed = ("to(wide)\n        answers.append", "to(wide))\n        answers.append")
    first, second = find_alone("blockwise_attention", ("d_k = Q.shape[-1]", "d_k = K.shape[-1] - 1"), factor, closed)
    assert list_marks([first]) == ["math.sqrt(d_k)"]
    assert second.proof.startswith("With a factor here on the other term, too, ")


def test_masked_scores_do_not_stand_for_a_wrong_scale_beside_a_wrong_mask(find_alone: Explain) -> None:
    attend = """scores = q @ k.mT / math.sqrt(q.shape[-2])
    heads = run_softmax(torch.where(mask, scores, -1e9), -1) @ v"""
    found = find_alone(MULTIHEAD, (HEADS, attend), (".tril()\n", ".tril(1)\n"))
    assert list_marks(found) == ["q.shape[-2]", CAUSAL.replace(".tril()", ".tril(1)")]


def test_keys_in_the_place_of_values_are_the_first_of_two_mistakes(find_alone: Explain) -> None:
    """A right function proves nothing if it gets wrong arguments, so these are tried."""
    split = 'q, k, v = (rearrange(x, "... n (h d) -> ... h n d", h=num_heads) for x in (q, k, k))'
    projected = PROJECTIONS, f"q, k, v = (x @ w.T for w in weights[:3])\n    {split}"
    found = find_alone(MULTIHEAD, projected, ('"... h n d -> ... n (h d)"', '"... h n d -> ... n (d h)"'))
    assert list_marks(found) == ["x", 'rearrange(heads, "... h n d -> ... n (d h)")']


def test_a_right_function_that_gets_a_wrong_axis_is_not_marked(find_alone: Explain) -> None:
    """For the columns that hide all, its logarithm is not the reference's."""
    attend = """    scores = (Q.to(wide) / math.sqrt(K.shape[-2])) @ K.to(wide).mT
    if mask is None:
        return (run_softmax(scores, -1) @ V.to(wide)).to(Q.dtype)
    seen = mask.any(-1, keepdim=True)
    weights = run_softmax(scores.masked_fill(~mask & seen, -math.inf), -2) * seen
    return (weights @ V.to(wide)).to(Q.dtype)
"""
    body = RIGHT[RIGHT.index("    weights = run_softmax(scores_of") : RIGHT.index("\n\ndef run_linear")]
    found = find_alone(ATTENTION, BY_LOGARITHM, (body, attend))
    assert list_marks(found) == ["K.shape[-2]", "-2"]


def test_a_size_that_makes_one_block_of_all_is_no_proof(find_alone: Explain) -> None:
    """With any large number for the 4, nothing has to be added up."""
    body = RIGHT[RIGHT.index("    wide = torch.promote_types(Q.dtype") : RIGHT.index("\n\ndef run_linear")]
    blocks = "    return run_blockwise_attention(Q, K, V, mask, 4)\n"
    (finding,) = find_alone(ATTENTION, (body, blocks), ("shrink * weighted", "weighted"))
    assert list_marks([finding]) == ["weighted"]


def test_a_mask_that_a_dictionary_keeps_is_marked_where_it_is_made(find_alone: Explain) -> None:
    kept = """_masks = {}


def make_mask(n):
    if n not in _masks:
        _masks[n] = torch.arange(n)[:, None] > torch.arange(n)
    return _masks[n]


for n in range(99):
    make_mask(n)


def attend_by_heads"""
    (finding,) = find_alone(MULTIHEAD, ("def attend_by_heads", kept), (CAUSAL, "make_mask(length)"))
    assert list_marks([finding]) == ["torch.arange(n)[:, None] > torch.arange(n)"]


def test_a_repair_of_all_tests_is_told_in_place_of_a_second_value_that_explains_most(find_alone: Explain) -> None:
    attend = """    scores = (Q.to(wide) * Q.shape[-1] ** 0.5) @ K.to(wide).mT
    if mask is None:
        return (run_softmax(scores, -1) @ V.to(wide)).to(Q.dtype)
    seen = mask.any(-1, keepdim=True)
    weights = run_softmax(torch.where(torch.logical_or(mask, ~seen), scores, -math.inf), -1)
    return (weights @ V.to(wide)).to(Q.dtype)
"""
    body = RIGHT[RIGHT.index("    weights = run_softmax(scores_of") : RIGHT.index("\n\ndef run_linear")]
    first, second = find_alone(ATTENTION, BY_LOGARITHM, (body, attend))
    assert list_marks([first]) == ["Q.shape[-1] ** 0.5"]
    assert second.proof == "With a mask as one more factor here, too, all 33 failing tests pass."


def test_an_axis_that_a_constructor_gets_is_marked_there(find_alone: Explain) -> None:
    body = RIGHT[RIGHT.index("    x = in_features.to(") : RIGHT.index("\n\ndef scores_of")]
    methods = body.replace("\n    ", "\n        ").replace("dim,", "self.dim,").replace("    x =", "        x =", 1)
    layer = f"""class Softmax(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, in_features):
{methods}

def run_softmax(in_features, dim):
    return Softmax(dim)(in_features)
"""
    edits = [
        (f"def run_softmax(in_features, dim):\n{body}", layer),
        ("    weights = run_softmax(scores_of", "    softmax = Softmax(-2)\n    weights = softmax(scores_of"),
        ("mask), -1)", "mask))"),
    ]
    (finding,) = find_alone(ATTENTION, *edits)
    assert finding.code[-2].endswith("Softmax(-2)")
    assert finding.proof == "With one more or one less here, all 35 failing tests pass."


def test_indices_are_marked_where_they_are_made_and_not_where_rows_are_taken(find_alone: Explain) -> None:
    share = """def share(x, num_heads):
    owner = torch.arange(num_heads) % x.shape[-3]
    return x.index_select(-3, owner)


def run_decoding"""
    repeated = "q, k.repeat_interleave(group, -3), v.repeat_interleave(group, -3), mask"
    shared = (repeated, "q, share(k, num_heads), share(v, num_heads), mask")
    found = find_alone("decoding", ("def run_decoding", share), shared)
    assert list_marks(found[:1]) == ["torch.arange(num_heads) % x.shape[-3]"]


def test_a_size_that_could_be_larger_as_well_repairs_nothing(find_alone: Explain) -> None:
    """With one block of all, nothing has to be added up, so a wrong sum does not matter."""
    sized = (
        "def run_blockwise_attention(Q, K, V, mask=None, block_size=None):",
        "def attend(Q, K, V, mask, block_size=4):",
    )
    called = ("run_scaled_dot_product_attention(q, k, v, mask)", "attend(q, k, v, mask)")
    found = find_alone(MULTIHEAD, sized, called, ("shrink * weighted", "weighted"))
    assert list_marks(found) == ["weighted"]
    assert found[0].proof.startswith("With one more factor in this term, ")


def test_a_slice_with_a_name_is_marked_where_it_is_made(find_alone: Explain) -> None:
    by_heads = """    q, k, v = (x @ w.T for w in weights[:3])
    heads, mask = [], torch.ones(length, length, dtype=torch.bool).tril()
    for i in range(num_heads):
        columns = slice(i, None, num_heads)
        q_i, k_i, v_i = q[..., columns], k[..., columns], v[..., columns]
        if turn is not None:
            q_i, k_i = (turn(each.unsqueeze(-3)).squeeze(-3) for each in (q_i, k_i))
        heads.append(run_scaled_dot_product_attention(q_i, k_i, v_i, mask))
    return torch.cat(heads, -1) @ weights[3].T
"""
    body = RIGHT[RIGHT.index(f"    {PROJECTIONS}") : RIGHT.index("\n\ndef run_multihead_self_attention(")]
    (finding,) = find_alone(MULTIHEAD, (body, by_heads))
    assert list_marks([finding]) == ["slice(i, None, num_heads)"]
    assert finding.proof.startswith("With this corrected, ")


def test_a_size_that_is_passed_for_another_one_is_marked_in_the_call(find_alone: Explain) -> None:
    attend = "def attend_by_heads(x, weights, num_heads, turn, width):"
    scale = f"def scale_of(d_k):\n    return 1 / math.sqrt(d_k)\n\n\n{attend}"
    edits = [
        ("def attend_by_heads(x, weights, num_heads, turn=None):", scale),
        (HEADS, "heads = run_softmax((q @ k.mT * scale_of(width)).masked_fill(~mask, -math.inf), -1) @ v"),
        ("o_proj_weight), num_heads)", "o_proj_weight), num_heads, None, d_model)"),
        ("lambda x: rotation(x, positions))", "lambda x: rotation(x, positions), d_model)"),
    ]
    (finding,) = find_alone(MULTIHEAD, *edits)
    assert list_marks([finding]) == ["width"]
    assert finding.said == ("Expected the length of a head; found d_model.",)
