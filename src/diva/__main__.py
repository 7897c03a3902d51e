"""``python -m diva`` is the command line."""

import os
import signal
import sys


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
    from diva.distributed import join  # torchrun has started several processes

    with join():
        command(prog_name="diva")


def _stop(*_: object) -> None:
    """Nothing has begun, so there is nothing to end."""
    sys.stderr.write("Stopped before it began.\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
