"""Something that moves while a model learns: a bar in a terminal or a notebook, a line for every step in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any


class Progress:
    """Nobody watches: says nothing."""

    def say(self, text: str, share: float | None = None) -> None:
        """What a step did, and the share of all that is done; None if nobody knows how much is left."""

    def move(self, share: float) -> None:
        """Go on inside a step."""


class Lines(Progress):
    """A line for every step on standard output."""

    def say(self, text: str, share: float | None = None) -> None:  # noqa: ARG002, D102  # a line has no bar
        print(text, flush=True)


class TerminalBar(Progress):
    """A bar on standard error that leaves nothing behind."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)

    def say(self, text: str, share: float | None = None) -> None:  # noqa: D102
        self._bar.update(self._task, description=text, completed=share, total=None if share is None else 1.0)

    def move(self, share: float) -> None:  # noqa: D102
        self._bar.update(self._task, completed=share, total=1.0)


class NotebookBar(Progress):
    """A bar in the output of a cell; needs no widgets."""

    def __init__(self, handle: Any, make_html: Any) -> None:
        self._handle, self._make_html = handle, make_html
        self._text, self._share, self._drawn = "", None, -1.0

    def say(self, text: str, share: float | None = None) -> None:  # noqa: D102
        self._text = text
        self._draw(share)

    def move(self, share: float) -> None:  # noqa: D102
        if share - self._drawn >= 0.01:  # a cell is slow
            self._draw(share)

    def _draw(self, share: float | None) -> None:
        self._drawn = -1.0 if share is None else share
        value = "" if share is None else f" value='{share:.3f}'"
        self._handle.update(self._make_html(f"<progress max='1'{value}></progress> <code>{escape(self._text)}</code>"))


@contextmanager
def progress_of(verbose: bool) -> Iterator[Progress]:
    """What shows progress here, while it lasts."""
    if not verbose:
        yield Progress()
    elif in_notebook():
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        yield NotebookBar(display(HTML(""), display_id=True), HTML)
    elif sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (SpinnerColumn(), BarColumn(bar_width=24), TimeRemainingColumn(compact=True))
        text = TextColumn("{task.description}", markup=False)
        with RichProgress(*columns, text, console=Console(stderr=True, highlight=False), transient=True) as bar:
            yield TerminalBar(bar)
    else:
        yield Lines()


def in_notebook() -> bool:
    """Whether a kernel shows what is displayed."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")
