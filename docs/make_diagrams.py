"""Draw the diagrams of docs/how-it-works.md: ``python docs/make_diagrams.py``. Plain SVG, no library but NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, PURPLE, GREY, INK = "#3f51b5", "#ef8a17", "#2e8b57", "#8e44ad", "#8a8f98", "#1d2330"
WHAT_THE_MIXTURE_DOES = "a Dirichlet process of Gaussians:\nbirths, merges and deletions,\neach only if the bound rises"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


class Drawing:
    """Shapes, one after the other, and the file they go to."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="{FONT}" font-size="14" fill="{INK}" role="img">',
            f"<title>{title}</title>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
        ]

    def add(self, part: str) -> None:
        """One piece of SVG."""
        self._parts.append(part)

    def text(
        self, x: float, y: float, lines: str, size: int = 14, colour: str = INK, anchor: str = "middle", bold: bool = False
    ) -> None:
        """Lines of text, the first one at y."""
        weight = ' font-weight="600"' if bold else ""
        for i, line in enumerate(lines.split("\n")):
            self.add(
                f'<text x="{x:g}" y="{y + i * size * 1.3:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>'
                f"{line}</text>"
            )

    def box(self, x: float, y: float, width: float, height: float, title: str, note: str, colour: str) -> None:
        """A part with a name and a remark."""
        self.add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" fill="{colour}" fill-opacity="0.10" '
            f'stroke="{colour}" stroke-width="1.6"/>'
        )
        n_lines = note.count("\n") + 1 if note else 0
        top = y + height / 2 - n_lines * 8 + 5
        self.text(x + width / 2, top, title, 16, colour, bold=True)
        if note:
            self.text(x + width / 2, top + 20, note, 12)

    def arrow(self, path: str, dashed: bool = False, colour: str = INK) -> None:
        """A line with a tip at its end."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.add(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash} marker-end="url(#tip)"/>')

    def dots(self, points: np.ndarray, colour: str, radius: float = 2.4) -> None:
        """Samples."""
        circles = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in points)
        self.add(f'<g fill="{colour}" fill-opacity="0.75">{circles}</g>')

    def ellipse(
        self, x: float, y: float, rx: float, ry: float, turn: float = 0, colour: str = INK, dashed: bool = False
    ) -> None:
        """A component."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.add(
            f'<ellipse cx="{x:g}" cy="{y:g}" rx="{rx:g}" ry="{ry:g}" transform="rotate({turn:g} {x:g} {y:g})" fill="{colour}" '
            f'fill-opacity="0.08" stroke="{colour}" stroke-width="1.8"{dash}/>'
        )

    def save(self, name: str) -> None:
        """Write the file."""
        (IMAGES / name).write_text("\n".join([*self._parts, "</svg>"]) + "\n")


def loop() -> None:
    """Encoder, mixture, decoder, and what goes round between them."""
    d = Drawing(860, 400, "The loop: the encoder gives codes, the mixture of the codes is the prior of the encoder")
    d.box(20, 40, 130, 90, "samples", "and augmented\nviews of them", GREY)
    d.box(210, 40, 150, 90, "encoder", "q(z|x): a mean\nand a spread", BLUE)
    d.box(440, 40, 130, 90, "codes z", "10 or 16\nnumbers each", BLUE)
    d.box(630, 40, 200, 90, "decoder", "rebuilds the clean sample", BLUE)
    d.box(
        330,
        240,
        300,
        120,
        "mixture",
        WHAT_THE_MIXTURE_DOES,
        ORANGE,
    )
    d.arrow("M150 85H206")
    d.arrow("M360 85H436")
    d.arrow("M570 85H626")
    d.arrow("M540 130C560 170 560 200 545 236", colour=ORANGE)
    d.text(570, 196, "after every epoch:\na few laps over the codes", 12, anchor="start")
    d.arrow("M330 300C240 290 240 200 270 134", colour=ORANGE)
    d.text(60, 215, "the mixture is the prior:\ncodes are drawn towards\ntheir components", 12, anchor="start")
    d.text(730, 155, "reconstruction: codes must\nstill tell samples apart", 12)
    d.save("loop.svg")


def cloud(rng: np.random.Generator, centre: Sequence[float], spread: Sequence[float], n: int) -> np.ndarray:
    """Points about a centre."""
    return rng.normal(centre, spread, size=(n, 2))


def moves() -> None:
    """Birth, merge and deletion, before and after."""
    d = Drawing(860, 330, "Birth, merge and deletion")
    rng = np.random.default_rng(3)
    titles = ("birth", "merge", "deletion")
    notes = (
        "One component covers two groups.\nTwo describe the data better.",
        "Two components share one group.\nOne describes it as well, for less.",
        "A component holds scraps of others.\nIts samples go to its neighbours.",
    )
    for i, (title, note) in enumerate(zip(titles, notes, strict=True)):
        left = 20 + i * 285
        d.text(left + 125, 28, title, 16, ORANGE, bold=True)
        d.text(left + 125, 290, note, 12)
        for y in (95, 215):
            a, b = cloud(rng, (left + 75, y), (16, 12), 45), cloud(rng, (left + 175, y), (16, 12), 45)
            if title == "birth":
                d.dots(np.concatenate([a, b]), BLUE)
                if y == 95:
                    d.ellipse(left + 125, y, 108, 42, colour=ORANGE)
                else:
                    d.ellipse(left + 75, y, 46, 36, colour=ORANGE)
                    d.ellipse(left + 175, y, 46, 36, colour=ORANGE)
            elif title == "merge":
                d.dots(cloud(rng, (left + 125, y), (28, 13), 90), BLUE)
                if y == 95:
                    d.ellipse(left + 105, y, 56, 36, 8, ORANGE)
                    d.ellipse(left + 148, y, 54, 36, -8, ORANGE)
                else:
                    d.ellipse(left + 125, y, 80, 38, colour=ORANGE)
            else:
                d.dots(np.concatenate([a, b, cloud(rng, (left + 125, y), (12, 14), 8)]), BLUE)
                d.ellipse(left + 75, y, 46 if y == 95 else 56, 36, colour=ORANGE)
                d.ellipse(left + 175, y, 46 if y == 95 else 56, 36, colour=ORANGE)
                if y == 95:
                    d.ellipse(left + 125, y, 26, 40, colour=GREY, dashed=True)
        d.arrow(f"M{left + 125} 144V168")
    d.save("moves.svg")


def views() -> None:
    """Views pass between components of one class, not between classes: components become clusters."""
    d = Drawing(860, 360, "Components that views of samples pass between become one cluster")
    rng = np.random.default_rng(5)
    angle = rng.uniform(np.pi * 1.05, np.pi * 1.95, 260)
    for offset, found in ((0, False), (430, True)):
        arc = np.stack([offset + 190 + 120 * np.cos(angle), 220 + 132 * np.sin(angle)], axis=1)
        arc += rng.normal(0, 9, arc.shape)
        ball = cloud(rng, (offset + 190, 250), (20, 14), 90)
        d.dots(arc, GREEN if found else BLUE)
        d.dots(ball, PURPLE if found else BLUE)
        for where, turn in ((200, -68), (235, -35), (270, 0), (305, 35), (340, 68)):
            theta = np.deg2rad(where)
            x, y = offset + 190 + 120 * np.cos(theta), 220 + 132 * np.sin(theta)
            d.ellipse(x, y, 46, 24, turn, GREEN if found else ORANGE)
        d.ellipse(offset + 190, 250, 50, 36, 0, PURPLE if found else ORANGE)
    for x, y, dx, dy in ((80, 150, 22, -34), (130, 100, 36, -8), (208, 86, 36, 8), (268, 118, 24, 30)):
        d.arrow(f"M{x} {y}q{dx / 2 - dy / 3:g} {dy / 2 + dx / 3:g} {dx} {dy}")
    d.text(190, 28, "6 components", 16, ORANGE, bold=True)
    d.text(620, 28, "2 clusters", 16, GREEN, bold=True)
    d.text(190, 320, "Arrows: an augmented view falls into\nanother component than its sample.", 12)
    d.text(620, 320, "What views pass between is one cluster.\nNone pass from the arc to the ball.", 12)
    d.save("views.svg")


def phases() -> None:
    """What happens over the epochs."""
    d = Drawing(860, 330, "Phases over the epochs: warm-up, coupled, self-training, end")
    left, width = 120, 620
    bounds = [0, 0.2, 2 / 3, 1.0]
    names = ("warm-up", "coupled", "self-training")
    colours = (GREY, ORANGE, GREEN)
    texts = (
        "learns from\naugmented views",
        "mixture after every epoch;\nit is the prior of the next",
        "the encoder learns\nconfident pseudo-labels",
    )
    for name, colour, text, a, b in zip(names, colours, texts, bounds[:-1], bounds[1:], strict=True):
        x, w = left + a * width, (b - a) * width
        d.add(f'<rect x="{x:g}" y="50" width="{w:g}" height="200" fill="{colour}" fill-opacity="0.10"/>')
        d.add(f'<path d="M{x:g} 50H{x + w:g}" stroke="{colour}" stroke-width="4"/>')
        d.text(x + w / 2, 38, name, 16, colour, bold=True)
        d.text(x + w / 2, 272, text, 12)
    d.add(f'<rect x="{left + width + 8}" y="50" width="92" height="200" rx="8" fill="{PURPLE}" fill-opacity="0.10"/>')
    d.text(left + width + 54, 38, "end", 16, PURPLE, bold=True)
    d.text(left + width + 54, 272, "each cluster gets\nits own mixture", 12)
    d.text(left - 10, 92, "prior", 13, anchor="end", bold=True)
    d.text(left - 10, 172, "components", 13, anchor="end", bold=True)
    for x, w, what in ((0, 0.2, "normal"), (0.2, 2 / 3, "mixture"), (2 / 3, 1.0, "normal")):
        d.text(left + (x + w) / 2 * width, 92, what, 13)
    d.add(f'<path d="M{left} 110H{left + width}" stroke="{GREY}" stroke-width="0.7"/>')
    steps = [(0.2, 1), (0.26, 4), (0.32, 8), (0.38, 11), (0.44, 13), (0.52, 12), (0.6, 12), (2 / 3, 12)]
    curve = "".join(f"{'M' if i == 0 else 'L'}{left + t * width:g} {235 - 8 * k:g}" for i, (t, k) in enumerate(steps))
    d.add(f'<path d="{curve}" fill="none" stroke="{ORANGE}" stroke-width="2.4"/>')
    d.text(left + 0.31 * width, 205, "births", 12, anchor="start")
    d.text(left + 0.53 * width, 127, "merges", 12)
    for i, level in enumerate((150, 172, 194, 216)):
        d.add(f'<path d="M{left + width + 30} {level}h48" stroke="{PURPLE}" stroke-width="{6 - i}"/>')
    d.text(left + 0.83 * width, 175, "samples whose views agree\nget pseudo-labels", 12)
    d.text(left + width / 2, 318, "epochs: one fifth, then about half, then one third", 12, GREY)
    d.save("phases.svg")


def favicon() -> None:
    """Three groups."""
    d = Drawing(32, 32, "diva")
    for x, y, colour in ((10, 11, BLUE), (22, 12, ORANGE), (16, 23, GREEN)):
        d.add(f'<circle cx="{x}" cy="{y}" r="6" fill="{colour}"/>')
    d.save("favicon.svg")


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (loop, moves, views, phases, favicon):
        draw()
