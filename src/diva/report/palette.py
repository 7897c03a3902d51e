"""Colours that colour-blind people can tell apart; where there are more groups than colours, shapes differ too."""

from __future__ import annotations

COLOURS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # green
    "#D55E00",  # vermilion
    "#CC79A7",  # pink
    "#56B4E9",  # sky
    "#882255",  # wine
    "#999933",  # olive
    "#332288",  # indigo
    "#767676",  # grey
    "#00C2B2",  # turquoise: from here on, not all can be told apart by colour-blind people without their shapes
    "#B10DC9",  # purple
    "#6B4226",  # brown
    "#F27E91",  # salmon
    "#3D9A1E",  # leaf
    "#8C82E0",  # lavender
    "#B8860B",  # dark gold
    "#004B49",  # petrol
    "#E6308A",  # magenta
    "#A3C644",  # lime
)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "triangle-down")
MARKERS = dict(zip(SYMBOLS, "oDs^PX*v", strict=True))  # the same shapes as matplotlib calls them
NEUTRAL = "#8a8f98"
INK = "#1f2933"
COMPONENTS, CLUSTERS = "#0072B2", "#D55E00"  # K of the one and of the other, over the epochs
BIRTHS, REMOVALS = "#009E73", "#882255"
FIRST_BOUND, SECOND_BOUND = "#332288", "#E69F00"
TINTS = ("#f4ecdb", "#e6eef7", "#e7f3ec")  # of phases, in turn
SHADES = [(0.0, "#ffffff"), (0.25, "#c9dcec"), (0.6, "#5b97c5"), (1.0, "#0b4d80")]  # of shares from 0 to 1


def colour_of(number: int) -> str:
    """Colour of a group."""
    return COLOURS[number % len(COLOURS)]


def symbol_of(number: int) -> str:
    """Shape of a group's points, another one after every ten groups; colour and shape together repeat only after 160."""
    return SYMBOLS[(number // 10 + number // (10 * len(SYMBOLS))) % len(SYMBOLS)]


def text_on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour."""
    parts = (part / 255 for part in _rgb(colour))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (luminance + 0.05) >= (luminance + 0.05) / 0.05 else "#000000"


def faded(colour: str, opacity: float) -> str:
    """The same colour, see-through."""
    red, green, blue = _rgb(colour)
    return f"rgba({red},{green},{blue},{opacity:g})"


def _rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
