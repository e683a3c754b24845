"""Decode a sequence in pieces, each call with the cache that the call before returned."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from whichline.engine.case import Case
from whichline.engine.compare import check_shape


def decode_in_pieces(case: Case, decode: Callable[..., Any], lengths: Sequence[int] | int) -> tuple[Any, ...]:
    """Decode all tokens of a case without a cache; return their outputs and the last cache.

    WrongAnswer if a call does not return three values, or its output has another shape than the piece.
    """
    answers, cache = [], [None, None]
    for piece in case.in_features.split(lengths, dim=-2):
        came = decode(**case.inputs | {"in_features": piece, "keys": cache[0], "values": cache[1]})
        answer, *cache = case.parts(came).values()
        check_shape(answer, tuple(piece.shape))
        answers.append(answer)
    return torch.cat(answers, dim=-2), *cache
