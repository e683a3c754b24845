"""The requests that the tests will make, known before there is a submission: they run on the references once.

A right submission is asked exactly that. Where a wrong one makes a test ask something else, the test gets its own
answer as it would have without this.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from cs336_kit.engine.suite import Suite, Test
from cs336_staff.authoring.room import reference_of
from cs336_staff.sandbox.inside.frames import decode, encode
from cs336_staff.sandbox.proxy import Adapters
from cs336_staff.sandbox.replies import Reply
from cs336_staff.sandbox.request import Request
from cs336_staff.sandbox.worker import Worker

Requests = Mapping[str, Sequence[Request]]


def foresee(suite: Suite, tests: Iterable[Test], proxy: Adapters, recorded: Collection[str]) -> Requests:
    """For each test, by name, the requests that it makes of a right submission.

    Args:
        suite: what the tests belong to.
        tests: those that will run. One with a process of its own is left out: it is not there before the test begins.
        proxy: what they call.
        recorded: the names of those in which torch records what runs.
    """
    found: dict[str, Sequence[Request]] = {}
    for test in tests:
        if not test.memory:
            recorder = _Recorder()
            proxy.worker = cast(Worker, recorder)  # it asks a worker nothing but `call`
            proxy.recorded = test.name in recorded
            suite.run(test)
            found[test.name] = recorder.requests
    proxy.worker = None
    return found


class _Recorder:
    """Stands in for a worker: it answers as the references do, and keeps what it is asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def call(self, header: dict[str, Any], tensors: list[Tensor]) -> Reply:
        kept = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
        self.requests.append(Request(header, kept).encode())
        wide = [_wide(tensor) for tensor in tensors]
        dtype = next(tensor.dtype for tensor in tensors if tensor.is_floating_point())
        arguments = [decode(argument, wide) for argument in header["arguments"]]
        outputs: list[Tensor] = []
        gradients: list[Tensor | None] = []
        with torch.set_grad_enabled(header["grad_enabled"]):
            value = encode(reference_of(header["call"])(*arguments), outputs)
            if "cotangents" in header:
                given = [tensor for tensor in wide if tensor.requires_grad]
                cotangents = [decode(cotangent, wide) for cotangent in header["cotangents"]]
                pairs = zip(outputs, cotangents, strict=True)
                loss = torch.stack([(output * by).sum() for output, by in pairs if by is not None]).sum()
                found = torch.autograd.grad(loss, given, allow_unused=True)
                gradients = [None if gradient is None else gradient.to(dtype) for gradient in found]
        return Reply(
            value=value,
            outputs=[output.detach().to(dtype) for output in outputs],
            differentiable=[output.requires_grad for output in outputs],
            changed=[None] * len(tensors),
            gradients=gradients,
            failure=None,
            missing=(),
            forbidden=(),
        )


def _wide(tensor: Tensor) -> Tensor:
    """In float64, as the references want it."""
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)
