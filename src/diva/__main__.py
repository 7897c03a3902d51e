"""``python -m diva`` is the command line."""

from diva.cli import main

if __name__ == "__main__":
    main()
