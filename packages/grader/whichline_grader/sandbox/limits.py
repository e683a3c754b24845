"""The limits of a submission. The key `limits` of `course.toml` changes them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The resources that a submission may use. Its import counts as a call.

    Seconds count while the worker computes, or while all its threads sleep. Time in the run queue does not count, so
    the load of the machine changes no verdict.

    Attributes:
        call_seconds: of one call.
        seconds: of all calls of one function together, and the imports before them; the advisor's calls do not count.
        patience: a call may last this many times its seconds on the clock; then the machine is too busy to grade.
        memory_bytes: resident memory of a worker, and private memory that it may map beyond the zygote's.
        threads: of a worker.
        reply_bytes: of the tensors in one reply; fewer if the call has small arguments.
        output_bytes: how much of stdout and of stderr is kept; the rest is dropped, 64 KiB every 10 ms.
    """

    call_seconds: float = 10.0
    seconds: float = 60.0
    patience: float = 20.0
    memory_bytes: int = 1 << 30  # with the grader, which takes less than 1.5 GiB, it fits in a container of 3 GB
    threads: int = 32
    reply_bytes: int = 64 << 20
    output_bytes: int = 64 << 10
