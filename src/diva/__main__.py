"""``python -m diva`` is the command line."""

import io
import os
import sys

from diva.stopping import stopping_quietly


def main() -> None:
    """Entry point: put the commands together, and run the one that was asked for."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be any bytes; standard error does so already
    with stopping_quietly():
        from diva.cli.app import put_together

        command = put_together()
        if "RANK" not in os.environ:
            command(prog_name="diva")
            return
        from diva.distributed import join  # torchrun has started several processes

        with join():
            command(prog_name="diva")


if __name__ == "__main__":
    main()
