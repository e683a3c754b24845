"""Read keys from the terminal as soon as they are pressed."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

if sys.platform == "win32":
    import msvcrt

    @contextmanager
    def keys(press: Callable[[str], None]) -> Iterator[None]:
        """Call `press`, from another thread, with each key."""

        def read() -> None:
            while True:
                key = msvcrt.getwch()
                if key in "\0\xe0":  # the first half of an arrow or a function key
                    msvcrt.getwch()
                else:
                    press(key)

        threading.Thread(target=read, daemon=True).start()
        yield

else:
    import re
    import termios
    import tty

    # An arrow or a function key sends this sequence; its last letter is no key that was pressed.
    ESCAPE_SEQUENCE = re.compile(r"\x1b(\[[0-9;]*|O)?.?")

    @contextmanager
    def keys(press: Callable[[str], None]) -> Iterator[None]:
        """Call `press`, from another thread, with each key; at the end, restore the terminal."""
        terminal = sys.stdin.fileno()

        def read() -> None:
            while typed := os.read(terminal, 64):
                for key in ESCAPE_SEQUENCE.sub("", typed.decode(errors="ignore")):
                    press(key)

        before = termios.tcgetattr(terminal)
        tty.setcbreak(terminal)
        threading.Thread(target=read, daemon=True).start()
        try:
            yield
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
