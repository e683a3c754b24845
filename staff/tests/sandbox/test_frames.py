"""A frame that was not written by `frames.pack` is refused, whatever is in it."""

import json
from typing import Any

import pytest
import torch

from whichline_grader.sandbox.inside.frames import FrameError, decode, unpack
from whichline_grader.sandbox.printable import printable
from whichline_grader.sandbox.reply import check

TOKEN = "t"  # noqa: S105
PARTS: list[dict[str, Any]] = [{}, {"token": "another"}, {"token": True}, {"token": TOKEN}]
ERRORS = [{"message": 3}, {"lines": [["a", "b", "c"]]}, {"lines": [["a", 1, "c"]] * 101}]
ODD = [{"value": {"tensor": 0}}, {"outputs": "all"}, {"changed": [None, None]}, {"changed": [3]}, {"error": []}]
ODD += [{"error": {"type": "E", "message": "", "lines": []} | each} for each in ERRORS]
ODD += [{"missing": {"wandb": 1}}, {"forbidden": [["a", "b"]]}]


def described(**changes: Any) -> dict[str, Any]:
    return {"dtype": "float32", "shape": [2], "requires_grad": False} | changes


@pytest.mark.parametrize(
    ("descriptions", "message"),
    [
        (None, "a list of tensors"),
        ([None], "a tensor's description"),
        ([{}], "a dtype"),
        ([described(dtype="complex64")], "one of the dtypes"),
        ([described(dtype=["float32"])], "a dtype"),
        ([described(shape=2)], "a shape"),
        ([described(shape=[-1])], "a shape of at most"),
        ([described(shape=[2.0])], "a shape of at most"),
        ([described(shape=[True, 2])], "a shape of at most"),
        ([described(shape=[1] * 17)], "a shape of at most 16 sizes"),
        ([described(shape=[0, 1 << 62, 1 << 62])], "at most 1099511627776 elements"),
        ([described(shape=[3])], "a body of at least 12 bytes, got 8"),
        ([described(shape=[1])], "a body of 4 bytes, got 8"),
        ([described(), described(shape=[1])], "a body of at least 12 bytes"),
        ([], "a body of 0 bytes, got 8"),
    ],
)
def test_tensors_that_do_not_fit_their_body(descriptions: Any, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        unpack(descriptions, bytes(8))


def test_a_boolean_is_zero_or_one() -> None:
    (tensor,) = unpack([described(dtype="bool", shape=[3])], b"\x00\x02\xff")
    assert tensor.view(torch.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "value", [*({"tensor": x} for x in (1, -1, True)), {"tensor": 0, "x": 1}, {"dict": []}, {}, [[[[[[[[[[1]]]]]]]]]]]
)
def test_values_that_are_none(value: Any) -> None:
    with pytest.raises(FrameError):
        decode(value, [torch.ones(1)])


@pytest.mark.parametrize("reply", [*PARTS, *({"token": TOKEN, "tensors": []} | each for each in ODD)])
def test_replies_that_are_none(reply: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        check((json.dumps(reply).encode(), b""), TOKEN, [torch.ones(1)])


def test_gradients_have_the_shape_and_dtype_of_what_they_are_the_gradients_of() -> None:
    reply = {"token": TOKEN, "tensors": [described(shape=[1])], "gradients": [{"tensor": 0}]}
    raw = json.dumps(reply).encode(), bytes(4)
    assert check(raw, TOKEN, [torch.ones(1, requires_grad=True)]).gradients[0] is not None
    with pytest.raises(FrameError, match=r"expected a gradient of shape \(2,\), got \(1,\)"):
        check(raw, TOKEN, [torch.ones(2, requires_grad=True)])


def test_text_is_made_printable() -> None:
    assert printable("a\x1b[31m\u202e\ud800\n\tb") == "a\ufffd[31m\ufffd\ufffd\n\tb"
