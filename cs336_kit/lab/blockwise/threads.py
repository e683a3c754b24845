"""Work shared out among threads, each of which computes on its own.

An operation that torch splits over threads ends when the slowest of them does. Blockwise attention is thousands of
short operations, so one busy neighbour on one core would stop all threads thousands of times in a call. Here a thread
has an item of its own, such as a block of queries of a few heads, and takes the next when it is done: a core that other
programs use does less. Python's threads do for that, since torch lets go of the interpreter's lock while it computes.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")


def share_out(work: Callable[[Iterator[Item]], None], items: Iterable[Item]) -> None:
    """Call `work` in `torch.get_num_threads()` threads, this one among them. Together they get all of `items`.

    Each call is given an iterator that takes the next of the items that are left. If one raises an exception, nobody
    gets another item, and the exception goes on from here when all have ended.

    While this runs, torch computes on one thread in each of them. `torch.set_num_threads` sets that for the thread that
    calls it, but also with how many a thread begins that has not used torch before; the end of this gives both back.
    """
    queue = deque(items)
    inference = torch.is_inference_mode_enabled()  # each thread has this, and whether gradients are on, for itself

    def take_part() -> None:
        try:
            work(_taken_from(queue))
        finally:
            queue.clear()  # unless there was an exception, it is empty

    def help_out() -> None:
        torch.get_num_threads()  # otherwise the first operation in a new thread would overwrite what is set next
        torch.set_num_threads(1)
        with torch.inference_mode(inference), torch.no_grad():
            take_part()

    helpers = [_pool(os.getpid()).submit(help_out) for _ in range(min(torch.get_num_threads(), len(queue)) - 1)]
    with one_thread():
        try:
            take_part()
        finally:
            # Where the machine is busy, some helpers have not even begun; there is nothing left for them to do.
            helpers = [helper for helper in helpers if not helper.cancel()]
            wait(helpers)
    for helper in helpers:
        helper.result()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in here on the calling thread alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _taken_from(queue: deque[Item]) -> Iterator[Item]:
    while True:
        try:
            yield queue.popleft()  # several threads may do this at once
        except IndexError:
            return


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The helpers of this process, started when they are needed: a fork has none of its parent's."""
    return ThreadPoolExecutor(os.cpu_count(), "blockwise attention")
