"""What a plot shows, as plain values. Plotly draws it on the page and matplotlib for papers; neither is known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diva.report.palette import INK


@dataclass(frozen=True)
class Line:
    """A curve; None is a gap in it. With ``steps`` it stays level until the next point."""

    x: Sequence[float | None]
    y: Sequence[float | None]
    colour: str
    name: str = ""
    width: float = 1.5
    steps: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Points:
    """Points of one colour and shape, sizes in pixels; ``hover`` is what each says when pointed at."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    symbol: str = "circle"
    size: float | Sequence[float] = 8.0
    hover: Sequence[str] = ()
    name: str = ""
    opacity: float = 1.0


@dataclass(frozen=True)
class Bars:
    """Horizontal bars from the top down, at 0, 1, 2, ..., each with a text beside it."""

    values: Sequence[float]
    colours: Sequence[str]
    texts: Sequence[str] = ()
    hover: Sequence[str] = ()


@dataclass(frozen=True)
class Heat:
    """A table of shares from 0 to 1 as shades, rows from the top down, with a text in each cell if there are any."""

    shares: Sequence[Sequence[float]]
    hover: Sequence[Sequence[str]]
    texts: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Band:
    """A curved band from left to right, given by its upper edge."""

    x0: float
    y0: float
    x1: float
    y1: float
    height: float
    colour: str


@dataclass(frozen=True)
class Text:
    """A text at a point: in the middle of it, or to its left or right; ``box`` is the colour behind it."""

    x: float
    y: float
    text: str
    place: Literal["middle", "left", "right"] = "middle"
    colour: str = INK
    box: str | None = None
    bold: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """An image of bytes, given by its upper left corner and its size."""

    pixels: NDArray[np.uint8]
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Span:
    """A shaded part of the x axis, with its name above."""

    first: float
    last: float
    colour: str
    name: str


@dataclass(frozen=True)
class Rule:
    """An upright line across the whole plot, with its name above; dotted unless it has none."""

    x: float
    name: str = ""


Mark: TypeAlias = Line | Points | Bars | Heat | Band | Text | Picture | Span | Rule


@dataclass(frozen=True)
class Axis:
    """An axis. A range may run downwards; ``ticks`` are values and texts, None lets the library choose."""

    title: str = ""
    range: tuple[float, float] | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    percent: bool = False
    whole: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class Area:
    """Marks in one coordinate system, drawn in their order."""

    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""


@dataclass(frozen=True)
class Plot:
    """Areas side by side in rows; those of a column share the x axis, those of a row the y axis."""

    areas: Sequence[Area]
    height: float  # in pixels of a page on which a line of text is about 20 high; the page takes the width it has
    width: float = 700.0
    columns: int = 1
    shares: Sequence[float] = (1.0,)  # relative widths of the columns, or heights of the rows if there is one column
    legend: bool = False  # whether marks with a name are listed

    def marks(self, kind: type[Any]) -> list[Any]:
        """All marks of a kind."""
        return [mark for area in self.areas for mark in area.marks if isinstance(mark, kind)]


def row_ticks(names: Sequence[str], title: str = "") -> Axis:
    """The y axis of rows from the top down, by their names."""
    return Axis(title, range=(len(names) - 0.4, -0.6), ticks=list(enumerate(names)))
