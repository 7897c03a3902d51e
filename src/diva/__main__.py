"""``python -m diva`` is the command line."""

from diva.stopping import stopping_quietly


def main() -> None:
    """Entry point: put the commands together, and run the one that was asked for."""
    with stopping_quietly():
        from diva.cli.app import put_together

        put_together()(prog_name="diva")


if __name__ == "__main__":
    main()
