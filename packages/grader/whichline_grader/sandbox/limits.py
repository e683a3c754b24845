"""The limits of a submission; the key `limits` of `course.toml` sets other values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The resources that a submission may use. The import counts as a call.

    Seconds are the worker's own: those in which it computes, and those in which all its threads sleep. While it waits
    for a processor it uses none, so that neither load nor another submission takes any of them.

    Attributes:
        call_seconds: of one call.
        seconds: of all calls of one function together, and the imports before them: none takes time from another.
        patience: how many times its seconds a call may last on the clock; then the machine is too busy to grade.
        memory_bytes: resident memory of a worker; also the private memory that it may map beyond the zygote's.
        threads: of a worker.
        reply_bytes: of the tensors in one reply, and less where the call has small arguments.
        output_bytes: kept of each of stdout and stderr; the worker waits while the rest is dropped,
            64 KiB every 10 ms.
    """

    call_seconds: float = 10.0
    seconds: float = 60.0
    patience: float = 20.0
    memory_bytes: int = 1 << 30  # a container of 3 GB holds the grader too, which takes less than 1.5 GiB
    threads: int = 32
    reply_bytes: int = 64 << 20
    output_bytes: int = 64 << 10
