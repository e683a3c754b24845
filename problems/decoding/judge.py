"""Decoding in pieces: the calls that a sequence takes, each with the cache that the one before returned."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from whichline.engine.case import Case
from whichline.engine.compare import check_shape


def decode_in_pieces(case: Case, decode: Callable[..., Any], lengths: Sequence[int] | int) -> tuple[Any, ...]:
    """The answers to all tokens of a case without a cache, and the cache that the last call returned.

    Raises:
        WrongAnswer: a call does not return three things, or its answer is not a tensor like the piece.
    """
    answers, cache = [], [None, None]
    for piece in case.in_features.split(lengths, dim=-2):
        came = decode(**case.inputs | {"in_features": piece, "keys": cache[0], "values": cache[1]})
        answer, *cache = case.parts(came).values()
        check_shape(answer, tuple(piece.shape))
        answers.append(answer)
    return torch.cat(answers, dim=-2), *cache
