"""``python -m diva`` is the command line."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout


def main() -> None:
    """Entry point: put the commands together, which takes seconds, and run the one that was asked for."""
    if waiting := signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in the background of a shell
        signal.signal(signal.SIGINT, _stop)  # modules being imported would answer with a stack trace
    from diva.cli.app import put_together

    command = put_together()
    if waiting:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "RANK" not in os.environ:
        command(prog_name="diva")
        return
    from diva.distributed import is_main, join  # torchrun has started several processes, of which one speaks

    with join(), nullcontext() if is_main() else _silence():
        command(prog_name="diva")


@contextmanager
def _silence() -> Iterator[None]:
    """Say nothing but what went wrong."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def _stop(*_: object) -> None:
    """Nothing has begun, so there is nothing to end."""
    sys.stderr.write("Stopped before it began.\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
