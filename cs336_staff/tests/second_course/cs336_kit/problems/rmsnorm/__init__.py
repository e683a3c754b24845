"""RMSNorm, and asking a function what it divides by."""

from collections.abc import Callable
from typing import Any

import torch

from cs336_kit.engine.compare import near
from cs336_kit.engine.room import Room
from cs336_kit.examination.experiment import Ask, Finding, Finds, about, by_name, examine, number

NEXT_TO_NOTHING, EPS = 1e-12, 2.0


@about("rmsnorm", "2 RMSNorm")
def examine_rmsnorm(run: Callable[..., Any]) -> list[Finding]:
    return examine(by_name(run, "d_model", "eps", "weights", "in_features"), (_mean, _eps))


def _divisor(ask: Ask, eps: float) -> float:
    return 1 / float(ask.tensor((4,), 4, eps, torch.ones(4), torch.ones(4))[0])


def _mean(ask: Ask) -> Finds:
    if not near(_divisor(ask, NEXT_TO_NOTHING), 2.0):
        return None
    measured = "Without eps you divide (1, 1, 1, 1) by 2; its root mean square is 1."
    return Finding("no-mean", measured, "You take the sum of the squares.", "Over how many features do you average?")


def _eps(ask: Ask) -> Finds:
    root, came = _divisor(ask, NEXT_TO_NOTHING), _divisor(ask, EPS)
    if not near(came, root + EPS):
        return None
    right = number((root**2 + EPS) ** 0.5)
    measured = f"With eps = {number(EPS)} you divide (1, 1, 1, 1) by {number(came)}, and it should be {right}."
    return Finding("eps-outside", measured, "You add eps to the root.", "Is eps inside the root or outside?")


ROOM = Room(examinations={"run_rmsnorm": examine_rmsnorm})
