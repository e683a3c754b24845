"""A limit on processor time that is quick to ask for."""

import math
import time


class Deadline:
    """The end of some seconds of processor time, from now on."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds, self._clock = seconds, time.perf_counter() + seconds
        self._computed = time.process_time() + seconds if math.isfinite(seconds) else math.inf

    @property
    def is_past(self) -> bool:
        """Tell whether it is past. The processor's time, which can take a millisecond to read, is read only then."""
        return time.perf_counter() > self._clock and time.process_time() > self._computed
