"""Charts as SVG: curves, and areas on each other, laid out by arithmetic.

A chart fills whatever width it gets: its shapes are drawn in a square of ``SIZE`` units that the
page stretches, and its words stand beside it as text, which does not stretch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import NamedTuple

SIZE = 1000
"""The width and the height of a drawing, in units."""
MOST_POINTS = 240
"""The most points of a curve; more iterations are drawn as means of neighbours."""

Values = Sequence[float | None]
"""The values of a series, one an iteration; None: unknown, which is a gap."""


class Series(NamedTuple):
    """A curve or an area: its name, its path, its last known value and its style class."""

    name: str
    path: str
    last: float | None
    look: str


class Chart(NamedTuple):
    """Curves or areas over iterations.

    Attributes:
        title: what is shown.
        form: how values are written (``format``).
        shapes: the curves; areas from below.
        ticks: the values at the axis, from below.
        length: the number of iterations.
        stacked: True if the shapes are areas.
        breaks: where phases begin, in units.
    """

    title: str
    form: str
    shapes: list[Series]
    ticks: list[float]
    length: int
    stacked: bool
    breaks: list[int]


def draw_chart(
    title: str,
    series: Mapping[str, Values],
    *,
    form: str = ".1%",
    top: float | None = None,
    looks: Sequence[str] = (),
    breaks: Sequence[int] = (),
    stacked: bool = False,
) -> Chart:
    """Draw values over iterations.

    Args:
        title: what is shown.
        series: the values by name, all from the first iteration on.
        form: how values are written.
        top: the upper end of the axis; None: above the largest value.
        looks: the style classes of the series; empty: ``s0``, ``s1`` …
        breaks: the iterations at which phases begin.
        stacked: True to draw areas on each other.
    """
    count = max((len(values) for values in series.values()), default=0)
    largest = max(_known(chain.from_iterable(series.values())), default=0.0)
    ticks = _ticks(top or largest)
    shapes: list[Series] = []
    floor = [0.0] * min(count, MOST_POINTS)
    for place, (name, values) in enumerate(series.items()):
        points = _binned([*values, *[None] * (count - len(values))])
        if stacked:
            ceiling = [low + (value or 0.0) for low, value in zip(floor, points, strict=True)]
            back = _curve(floor[::-1], ticks[-1], backwards=True)
            path = f"{_curve(ceiling, ticks[-1])}L{back[1:]}Z"
            floor = ceiling
        else:
            path = _curve(points, ticks[-1])
        known = _known(values)
        last = known[-1] if known else None
        shapes.append(Series(name, path, last, looks[place] if looks else f"s{place % 8}"))
    places = [_across(at, count) for at in breaks]
    return Chart(title, form, shapes, ticks, count, stacked, places)


def _binned(values: Values) -> Values:
    """Return at most ``MOST_POINTS`` means of neighbouring values."""
    count = len(values)
    if count <= MOST_POINTS:
        return values
    means: list[float | None] = []
    for point in range(MOST_POINTS):
        neighbours = values[point * count // MOST_POINTS : (point + 1) * count // MOST_POINTS]
        known = _known(neighbours)
        means.append(fmean(known) if known else None)
    return means


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _curve(points: Values, top: float, *, backwards: bool = False) -> str:
    """Return the path of a curve, which ends at a gap and begins anew after it."""
    pieces: list[str] = []
    command = "M"
    for place, value in enumerate(points):
        if value is None:
            command = "M"
            continue
        x = _across(place, len(points))
        y = round(SIZE * (1 - min(value / top, 1.0)))
        pieces.append(f"{command}{SIZE - x if backwards else x} {y}")
        command = "L"
    return "".join(pieces)


def _across(place: int, count: int) -> int:
    return round(SIZE * place / max(1, count - 1))


def _ticks(largest: float) -> list[float]:
    """Return the values at an axis from 0 on, up to at least the largest value."""
    largest = largest or 1.0
    rough = largest / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * step for step in (1, 2, 2.5, 5, 10) if unit * step >= rough * 0.999)
    return [step * number for number in range(math.ceil(largest / step - 0.001) + 1)]
