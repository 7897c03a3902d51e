"""Failures, as one paragraph and an exit code; and stopping when asked to."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.markup import escape

from diva.cli._terminal import errors
from diva.exceptions import UnknownDatasetError
from diva.stopping import interrupts_are_raised

FAILURE, USAGE, INTERRUPTED = 1, 2, 130


class UsageError(ValueError):
    """The command cannot be carried out as it was given."""


class _Stopped(BaseException):
    """The user, or the system, asked the process to stop; nothing but the command line may catch it."""


@contextmanager
def for_people() -> Iterator[None]:
    """Turn what went wrong into a message on standard error and an exit code; no stack trace."""
    try:
        interrupts_are_raised()
        yield
    except typer.Exit:
        raise  # a RuntimeError, but not a failure
    except KeyboardInterrupt:
        errors.print("Stopped.")
        raise typer.Exit(INTERRUPTED) from None
    except (UsageError, UnknownDatasetError) as error:
        raise _exit(error, USAGE) from None
    except BrokenPipeError:
        raise typer.Exit(0) from None  # the reader of our output has enough
    except OSError as error:
        how = " ".join(getattr(error, "__notes__", ()))
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            how = f"The disk is full: free some space. {how or 'Then run the same command again.'}"
        message = str(error.strerror or error)
        if error.filename is not None and str(error.filename) not in message:
            message = f"{error.filename}: {message}"
        raise _exit(f"{message.rstrip('.')}. {how}", FAILURE) from None
    except (ValueError, ArithmeticError, RuntimeError, TypeError, MemoryError, ImportError) as error:
        raise _exit(error, FAILURE) from None


@contextmanager
def saying(how_to_go_on: Callable[[], str]) -> Iterator[None]:
    """Add to an error of the system how to go on when its cause is gone."""
    try:
        yield
    except OSError as error:
        error.add_note(how_to_go_on())
        raise


@contextmanager
def stopping_at_once(how_to_go_on: Callable[[], str]) -> Iterator[None]:
    """Make Ctrl-C and a polite kill end the work where it is, and say how to go on: the last checkpoint is whole."""

    def stop(*_: object) -> None:
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    except _Stopped:
        errors.print(f"Stopped{how_to_go_on()}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def _exit(error: Exception | str, code: int) -> typer.Exit:
    message = " ".join(str(error).split()) or type(error).__name__
    errors.print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True)
    return typer.Exit(code)
