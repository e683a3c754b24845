"""What the examination of RoPE finds."""

import math
from functools import partial

import pytest
import torch

from cs336_kit.problems.rope.examination import examine_rope


def found(run) -> list[str]:
    return [finding.id for finding in examine_rope(run)]


def rope(
    frequencies=lambda theta, i, d_k: theta ** (-2 * i / d_k),
    turn=lambda a, b, cos, sin: (a * cos - b * sin, a * sin + b * cos),
    positions=lambda positions, x: positions,
):
    """RoPE of given parts."""

    def run(d_k, theta, max_seq_len, in_query_or_key, token_positions):
        at = positions(token_positions, in_query_or_key)
        angle = at.unsqueeze(-1) * frequencies(theta, torch.arange(d_k // 2), d_k)
        a, b = in_query_or_key.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack(turn(a, b, angle.cos(), angle.sin()), -1).flatten(-2)

    return run


def table(d_k, theta, max_seq_len, in_query_or_key, token_positions, rows=0, dtype=torch.float32):
    """RoPE that looks up its cosines in a table, with `rows` more rows than positions."""
    angles = torch.arange(max_seq_len + rows).unsqueeze(-1) * theta ** (-torch.arange(0, d_k, 2) / d_k)
    cos, sin = angles.to(dtype).cos().float()[token_positions], angles.to(dtype).sin().float()[token_positions]
    a, b = in_query_or_key[..., 0::2], in_query_or_key[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


# What no specimen has, alone and beside another mistake.
REVERSED = {"turn": lambda a, b, cos, sin: (a * cos + b * sin, b * cos - a * sin)}
SINES = {"turn": lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin)}
DEGREES = {"frequencies": lambda theta, i, d_k: theta ** (-2 * i / d_k) * math.pi / 180}
LAST = {"positions": lambda positions, x: positions[..., -1:].expand(positions.shape)}
THETA = {"frequencies": lambda theta, i, d_k: 500.0 ** (-2 * i / d_k)}


@pytest.mark.parametrize(
    ("run", "ids"),
    [
        (rope(turn=lambda a, b, cos, sin: (a * cos + b * sin, a * sin - b * cos)), ["rope-reflection"]),
        (rope(frequencies=lambda theta, i, d_k: 3 * theta ** (-2 * i / d_k)), ["rope-angle-factor"]),
        (rope(positions=lambda positions, x: positions - 1), ["rope-start"]),
        (rope(positions=lambda positions, x: positions % 3), ["rope-positions"]),
        (rope(**REVERSED, **DEGREES), ["rope-direction", "rope-degrees"]),
        (rope(**REVERSED, **LAST), ["rope-direction", "rope-last-position"]),
        (rope(**SINES, **THETA), ["rope-sines-for-cosines", "rope-theta-ignored"]),
        (partial(table, dtype=torch.bfloat16), ["rope-angles-rounded", "rope-precision"]),
        (partial(table, dtype=torch.float16), ["rope-angles-rounded", "rope-precision"]),
    ],
)
def test_what_nobody_stored(run, ids):
    assert found(run) == ids


def test_a_short_table():
    (finding,) = examine_rope(partial(table, rows=-1))
    assert finding.id == "rope-fails-last-position"
    assert "fails where a position is max_seq_len - 1: `IndexError: index 3 is out of bounds" in finding.measured


def test_cosines_in_float16_lose_digits():
    def turn(a, b, cos, sin):
        cos, sin = cos.half().float(), sin.half().float()
        return a * cos - b * sin, a * sin + b * cos

    (finding,) = examine_rope(rope(turn=turn))
    assert finding.means == "The cosines and sines are rounded to float16."


def test_positions_that_meet_the_heads():
    def run(d_k, theta, max_seq_len, in_query_or_key, token_positions):
        return rope()(d_k, theta, max_seq_len, in_query_or_key, token_positions[:, 0][:, None, None])

    assert "rope-fails" in found(run)


def test_a_second_row_that_is_a_reflection_is_told_as_it_is():
    (finding,) = examine_rope(rope(turn=lambda a, b, cos, sin: (a * cos - b * sin, -a * sin - b * cos)))
    assert finding.means.startswith(
        "The rows of the matrix that you apply are (cos, -sin) and (-sin, -cos); they should be (cos, -sin) and "
        "(sin, cos)."
    )


def test_an_answer_that_depends_on_earlier_calls_is_examined_no_further():
    def run(in_query_or_key, **arguments):
        return torch.full_like(in_query_or_key, float(next(memory)))

    memory = iter(range(1000))
    assert found(run) == ["rope-remembers"]


def test_an_answer_of_which_a_part_is_not_written_is_examined_no_further():
    def run(in_query_or_key, **arguments):
        torch.full_like(in_query_or_key, math.nan)  # freed at once: the next tensor may be given its memory
        answer = torch.empty_like(in_query_or_key)
        answer[..., ::2] = in_query_or_key[..., ::2]
        return answer

    (finding,) = examine_rope(run)
    assert finding.measured == "24 of the 48 numbers of your answer depend on memory that was never written."


def test_angles_that_no_mistake_explains_are_measured():
    (finding,) = examine_rope(rope(frequencies=lambda theta, i, d_k: 1 / (1 + i)))
    assert finding.measured == (
        "With theta = 4 and d_k = 8 the pairs at position 1 are rotated by (1, 0.5, 0.3333, 0.25) radians; they should "
        "be rotated by (1, 0.7071, 0.5, 0.3536)."
    )
    assert not finding.means
