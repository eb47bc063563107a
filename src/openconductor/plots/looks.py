"""How things are told apart on paper: colours, markers, dashes, hatches.

In: positions and shares. Out: looks and colours. Pure; needs no matplotlib.

Colours are Okabe and Ito's eight (2008), which people with any common colour vision can tell apart; beside its colour
each series has a marker, and each filled area a hatch or its own lightness, so that a print in grey says the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#8A8A8A"
FAINT = "#D9D9D9"
INK = "#303030"

_CYCLE = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE, "#595959")  # no yellow: as a line it is lost on white paper
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "p", ">")
_DASHES = ((), (4.0, 1.5), (1.2, 1.2), (5.0, 1.2, 1.2, 1.2))
_RAMP = ("#EAF3FA", BLUE, "#00263D")  # light to dark: a print in grey keeps the order


@dataclass(frozen=True, slots=True)
class Look:
    """How one series is drawn.

    Attributes:
        colour: as ``#RRGGBB``.
        marker: matplotlib's name of the marker; "" is none.
        dashes: lengths of dashes and gaps in points; () is a solid line.
        hatch: of a filled area; "" is none.
        hollow: whether the marker is an outline, so that what lies below it can be seen.
    """

    colour: str
    marker: str = ""
    dashes: tuple[float, ...] = ()
    hatch: str = ""
    hollow: bool = False

    @property
    def unfilled(self) -> Look:
        """The same with an outline for a marker."""
        return replace(self, hollow=True)


OURS = Look(BLACK, "*")
"""The system that a figure is about."""
OTHERS = Look(GREY, "", (1.0, 1.0))
"""Several small series that are drawn as one."""


def look(position: int) -> Look:
    """The look of the series at a position; the first seventy differ in colour and marker taken together.

    >>> len({(one.colour, one.marker) for one in map(look, range(70))})
    70
    """
    return Look(
        _CYCLE[position % len(_CYCLE)],
        _MARKERS[position % len(_MARKERS)],
        _DASHES[position // len(_CYCLE) % len(_DASHES)],
    )


def shade(share: float) -> str:
    """A colour from light to dark for a share in [0, 1]; darker is more, in grey as well.

    >>> shade(0.0), shade(0.5), shade(1.0)
    ('#EAF3FA', '#0072B2', '#00263D')
    """
    place = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    index = min(int(place), len(_RAMP) - 2)
    low, high = _channels(_RAMP[index]), _channels(_RAMP[index + 1])
    mixed = (round(a + (b - a) * (place - index)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def ink_on(colour: str) -> str:
    """Black or white: what can be read on a colour, by its relative luminance (WCAG 2.2).

    >>> ink_on(BLUE), ink_on(YELLOW)
    ('#FFFFFF', '#000000')
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return BLACK if luminance > 0.25 else "#FFFFFF"  # on a middling blue thin white strokes are read more easily


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
