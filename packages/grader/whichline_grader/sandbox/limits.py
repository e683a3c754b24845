"""The limits of a submission. The key `limits` of `course.toml` changes them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The resources that a submission may use. Its import counts as a call.

    Seconds count while the worker computes, or while all its threads sleep. Time in the run queue does not count, so
    the load of the machine changes no verdict.
    """

    call_seconds: float = 10.0  # of one call
    seconds: float = 60.0  # of all calls of one function, and the imports before them; not of the search for mistakes
    patience: float = 20.0  # times these seconds on the clock, and the machine is too busy to grade
    # Resident memory of a worker, and private memory that it may map beyond the zygote's: with the grader, which takes
    # less than 1.5 GiB, it fits in a container of 3 GB.
    memory_bytes: int = 1 << 30
    threads: int = 32  # of a worker
    reply_bytes: int = 64 << 20  # of the tensors in one reply; fewer if the call has small arguments
    output_bytes: int = 64 << 10  # how much of stdout and of stderr is kept; the rest is dropped, 64 KiB every 10 ms
