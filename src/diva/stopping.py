"""Ctrl-C before there is anything to end, while a command is put together: no stack traces of imports.

Nothing is imported here that takes time.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopping_quietly() -> Iterator[None]:
    """Make Ctrl-C end the process without a stack trace, until `interrupts_are_raised`."""
    waiting = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background of a shell
    waiting = waiting and threading.current_thread() is threading.main_thread()  # others may not
    if waiting:
        signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        if waiting:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupts_are_raised() -> None:
    """From here on there is something to end: Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(*_: object) -> None:
    """Nothing has begun, so there is nothing to end."""
    sys.stderr.write("Stopped before it began.\n")
    sys.stderr.flush()
    os._exit(130)
