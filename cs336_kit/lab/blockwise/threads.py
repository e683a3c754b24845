"""Work on several threads, each of which computes on one.

An operation of torch's that is split over threads ends when the last of them does. Blockwise attention is thousands of
short operations, and so one busy neighbour on one core would stop all threads, thousands of times in a call. Here each
thread has an item of its own, a block of queries of a few heads, and takes the next when it is done: a core that other
programs use does less. Python's threads do for that, since torch lets go of the interpreter's lock while it computes.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from threading import Lock, Thread
from typing import TypeVar

import torch

Item = TypeVar("Item")


def share_out(work: Callable[[Iterator[Item]], None], items: Iterable[Item], device: torch.device) -> None:
    """Call `work` on `torch.get_num_threads()` threads, or in this one if that is 1. Together they get all `items`.

    Each call is given an iterator that takes the next item of those left. Gradients are off. When a call raises an
    exception, no more items are handed out, and the exception is raised here once every thread is done.
    """
    queue = deque(items)
    if torch.get_num_threads() == 1 or device.type != "cpu":
        work(_taken_from(queue))
        return
    inference = torch.is_inference_mode_enabled()  # this and whether gradients are on, each thread has for itself

    def work_in_thread() -> None:
        with torch.inference_mode(inference), torch.no_grad():
            work(_taken_from(queue))

    threads = min(torch.get_num_threads(), len(queue))
    futures = [_pool(os.getpid()).submit(work_in_thread) for _ in range(threads)]
    try:
        for future in futures:
            future.result()
    finally:
        queue.clear()
        wait(futures)


def _taken_from(queue: deque[Item]) -> Iterator[Item]:
    while True:
        try:
            yield queue.popleft()  # threads may do this at the same time
        except IndexError:
            return


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of this process: a fork has none of those of its parent. They are started when they are needed."""
    return ThreadPoolExecutor(os.cpu_count(), "blockwise attention", initializer=_compute_on_one_thread)


_one_at_a_time = Lock()


def _compute_on_one_thread() -> None:
    """Have torch compute on one thread in this thread of Python's, and in no other.

    `torch.set_num_threads` sets two numbers: how many threads operations of the calling thread use, and with how many
    a thread begins that has not used torch before. The second is given back by a thread that lives for nothing else.
    """
    with _one_at_a_time:
        threads = torch.get_num_threads()  # without this, the first operation would overwrite what is set here
        torch.set_num_threads(1)
        give_back = Thread(target=torch.set_num_threads, args=[threads])
        give_back.start()
        give_back.join()
