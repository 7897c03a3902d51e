"""``python -m diva`` is the command line."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def main() -> None:
    """Entry point: put the commands together, and run the one that was asked for."""
    with stopping_quietly():
        from diva.cli.app import put_together

        command = put_together()
    command(prog_name="diva")


@contextmanager
def stopping_quietly() -> Iterator[None]:
    """While modules are imported, which takes seconds, Ctrl-C ends the process without their stack traces."""
    waiting = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not in the background of a shell
    waiting = waiting and threading.current_thread() is threading.main_thread()  # others may not
    if waiting:
        signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        if waiting:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(*_: object) -> None:
    """Nothing has begun, so there is nothing to end."""
    sys.stderr.write("Stopped before it began.\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
