"""What the examination of RoPE finds."""

import math

import pytest
import torch

from cs336_kit.examination.rope import examine_rope
from cs336_staff.release.verify import submission


def found(run) -> list[str]:
    return [finding.id for finding in examine_rope(run)]


def rope(
    pairs=lambda x: x.unflatten(-1, (-1, 2)).unbind(-1),
    frequencies=lambda theta, i, d_k: theta ** (-2 * i / d_k),
    angles=lambda positions, f: positions.unsqueeze(-1) * f,
    turn=lambda a, b, cos, sin: (a * cos - b * sin, a * sin + b * cos),
    join=lambda a, b: torch.stack((a, b), -1).flatten(-2),
    positions=lambda positions, x: positions,
):
    """RoPE of given parts."""

    def run(d_k, theta, max_seq_len, in_query_or_key, token_positions):
        f = frequencies(theta, torch.arange(d_k // 2), d_k)
        angle = angles(positions(token_positions, in_query_or_key), f)
        return join(*turn(*pairs(in_query_or_key), angle.cos(), angle.sin()))

    return run


def table(d_k, theta, max_seq_len, in_query_or_key, token_positions, rows=0, dtype=torch.float32):
    """RoPE that looks up its cosines in a table, with `rows` more rows than positions."""
    angles = torch.arange(max_seq_len + rows).unsqueeze(-1) * theta ** (-torch.arange(0, d_k, 2) / d_k)
    cos, sin = angles.to(dtype).cos().float()[token_positions], angles.to(dtype).sin().float()[token_positions]
    a, b = in_query_or_key[..., 0::2], in_query_or_key[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


# A wrong part, by what is found when it is the only one.
WRONG = {
    "rope-pairs-halves": {"pairs": lambda x: x.chunk(2, -1), "join": lambda a, b: torch.cat((a, b), -1)},
    "rope-concatenated": {"join": lambda a, b: torch.cat((a, b), -1)},
    "rope-swapped": {"join": lambda a, b: torch.stack((b, a), -1).flatten(-2)},
    "rope-no-minus": {"turn": lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos)},
    "rope-reflection": {"turn": lambda a, b, cos, sin: (a * cos + b * sin, a * sin - b * cos)},
    "rope-sines-for-cosines": {"turn": lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin)},
    "rope-direction": {"turn": lambda a, b, cos, sin: (a * cos + b * sin, b * cos - a * sin)},
    "rope-from-one": {"angles": lambda positions, f: (positions.unsqueeze(-1) + 1) * f},
    "rope-degrees": {"frequencies": lambda theta, i, d_k: theta ** (-2 * i / d_k) * math.pi / 180},
    "rope-exponent-half": {"frequencies": lambda theta, i, d_k: theta ** (-i / d_k)},
    "rope-theta-ignored": {"frequencies": lambda theta, i, d_k: 10000.0 ** (-2 * i / d_k)},
    "rope-frequency": {"frequencies": lambda theta, i, d_k: theta ** (-2 * i // d_k).float()},
    "rope-row-number": {"positions": lambda positions, x: torch.arange(x.shape[-2])},
    "rope-last-position": {"positions": lambda positions, x: positions[..., -1:].expand(positions.shape)},
    "rope-first-sequence": {"positions": lambda positions, x: positions[:1] if positions.ndim > 1 else positions},
}
PAIRS_OF_MISTAKES = [
    ("rope-pairs-halves", "rope-exponent-half"),
    ("rope-pairs-halves", "rope-row-number"),
    ("rope-concatenated", "rope-from-one"),
    ("rope-no-minus", "rope-theta-ignored"),
    ("rope-swapped", "rope-row-number"),
    ("rope-direction", "rope-degrees"),
    ("rope-direction", "rope-last-position"),
    ("rope-from-one", "rope-exponent-half"),
    ("rope-frequency", "rope-first-sequence"),
    ("rope-sines-for-cosines", "rope-theta-ignored"),
]


def test_a_table_of_the_right_length_is_right():
    assert found(table) == []


@pytest.mark.parametrize("id", WRONG)
def test_what_nobody_stored(id):
    assert found(rope(**WRONG[id])) == [id]


@pytest.mark.parametrize(("first", "second"), PAIRS_OF_MISTAKES)
def test_two_mistakes_are_two_findings(first, second):
    assert found(rope(**{**WRONG[first], **WRONG[second]})) == [first, second]


def test_a_short_table():
    (finding,) = examine_rope(lambda **arguments: table(**arguments, rows=-1))
    assert finding.id == "rope-table-length"
    assert finding.measured.startswith("With max_seq_len = 4, a vector at position 3 fails: IndexError:")


def test_angles_in_half_precision():
    assert found(lambda **arguments: table(**arguments, dtype=torch.bfloat16)) == ["rope-precision", "rope-far"]


def test_a_part_of_the_vector():
    def run(d_k, theta, max_seq_len, in_query_or_key, token_positions):
        half, rest = in_query_or_key.chunk(2, -1)
        return torch.cat((rope()(d_k // 2, theta, max_seq_len, half, token_positions), rest), -1)

    assert found(run)[0] == "rope-part"


def test_views_that_are_overwritten():
    def run(d_k, theta, max_seq_len, in_query_or_key, token_positions):
        angle = token_positions.unsqueeze(-1) * theta ** (-torch.arange(0, d_k, 2) / d_k)
        out = in_query_or_key
        even, odd = out[..., 0::2], out[..., 1::2]
        out[..., 0::2] = even * angle.cos() - odd * angle.sin()
        out[..., 1::2] = even * angle.sin() + odd * angle.cos()
        return out

    assert found(run) == ["rope-overwritten", "rope-in-place"]


def test_positions_that_pick_the_rows():
    def run(d_k, theta, max_seq_len, in_query_or_key, token_positions):
        rows = token_positions.clamp(max=in_query_or_key.shape[-2] - 1)
        return rope()(d_k, theta, max_seq_len, in_query_or_key[..., rows, :], token_positions)

    assert "rope-rows-moved" in found(run)


def test_positions_that_meet_the_heads():
    def run(d_k, theta, max_seq_len, in_query_or_key, token_positions):
        return rope()(d_k, theta, max_seq_len, in_query_or_key, token_positions[:, 0][:, None, None])

    assert "rope-fails" in found(run)


def test_what_a_student_reads():
    (finding,) = examine_rope(submission("rope-half-split")["run_rope"])
    assert (
        finding.measured == "In a vector of length 8, component 0 is mixed with 4; it should be mixed with component 1."
    )
    (finding,) = examine_rope(submission("rope-exponent-i")["run_rope"])
    assert finding.measured == (
        "With theta = 4 and d_k = 8 the pairs turn by (1, 0.8409, 0.7071, 0.5946) from one position to the next; they "
        "should turn by (1, 0.7071, 0.5, 0.3536)."
    )
    assert finding.means == (
        "Pair i turns by theta^(-0.125 i); it should be theta^(-0.25 i). Your exponent is i/d_k, not 2i/d_k."
    )
    (finding,) = examine_rope(submission("rope-positions-of-first-batch")["run_rope"])
    assert "the vectors of x[1] have the positions 2, 3, 0 and 4, and are turned as at positions 4, 0, 5 and 1" in (
        finding.measured
    )
