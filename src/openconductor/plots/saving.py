# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Figures as files: SVG and PNG, byte for byte the same whenever they are drawn of the same numbers.

In: a Figure, or Records and a curve. Out: bytes; files that a reader never sees half-written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from openconductor.config import load_registered
from openconductor.errors import ConfigError
from openconductor.evaluation.records import Record
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material
from openconductor.plots.sheet import styled, text_of
from openconductor.storage import make_folder, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, str] = {
    "accuracy_cost": "openconductor.plots.accuracy_cost:plot",
    "headroom": "openconductor.plots.headroom:plot",
    "worker_kind": "openconductor.plots.worker_kind:plot",
    "workflow_length": "openconductor.plots.workflow_length:plot",
    "topology_kind": "openconductor.plots.topology_kind:plot",
    "worker_rounds": "openconductor.plots.worker_rounds:plot",
    "training_accuracy": "openconductor.plots.training_accuracy:plot",
    "format_gain": "openconductor.plots.format_gain:plot",
    "worker_share": "openconductor.plots.worker_share:plot",
}
OF_TRAINING = frozenset({"training_accuracy", "format_gain", "worker_share"})
"""The figures that are drawn from a curve; all others are drawn from records."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that was written.

    Attributes:
        title: what it shows.
        caption: what was counted, and what the intervals are; of an empty figure why there is nothing to draw.
        empty: whether it says in words why there is nothing to draw.
        svg, png: its files.
    """

    title: str
    caption: str
    empty: bool
    svg: Path
    png: Path


def save_all(
    records: Sequence[Record],
    folder: Path | str,
    curves: Path | str | None = None,
    *,
    workers: Mapping[int, str] | None = None,
    system: str | None = None,
) -> dict[str, Picture]:
    """Draw every figure that there is material for, and write each as ``<name>.svg`` and ``<name>.png``.

    Args:
        records: of an evaluation, of all systems; none draws the figures of the training alone.
        folder: where the files go; made where it is not there. Files of the same names are replaced.
        curves: a training's run folder, or its ``curves.jsonl``; None draws the figures of the evaluation alone.
        workers: the workers' names by ordinal.
        system: which system they are about; by default ``conductor``, else the first that plans.

    Returns:
        What was drawn, by the figure's name.

    Raises:
        ConfigError: matplotlib is not installed, the curve cannot be read, or there is neither a record nor a curve.
        JournalError: a file could not be written.
    """
    figures = draw_all(records, curves, workers=workers, system=system)
    return {name: save(figure, folder, name) for name, figure in figures.items()}


def draw_all(
    records: Sequence[Record],
    curves: Path | str | None = None,
    *,
    workers: Mapping[int, str] | None = None,
    system: str | None = None,
) -> dict[str, Figure]:
    """Every figure that there is material for, by name; arguments and errors as for ``save_all``."""
    if not records and curves is None:
        raise ConfigError("plots: got no record and no curve, expected one of them: an evaluation's or a training's")
    material = Material(records, workers or {}, read_curve(curves) if curves is not None else (), system)
    found: dict[str, Figure] = {}
    for name in FIGURES:
        if (curves is not None) if name in OF_TRAINING else records:
            plot = cast("Callable[[Material], Figure]", load_registered(FIGURES, name, what="figure"))
            found[name] = plot(material)
    return found


def save(figure: Figure, folder: Path | str, name: str) -> Picture:
    """Write a figure as SVG and PNG.

    Raises:
        JournalError: a file could not be written.
    """
    svg, png = (Path(folder) / f"{name}.{form}" for form in ("svg", "png"))
    make_folder(svg.parent)
    write_whole(svg, rendered(figure, "svg"))
    write_whole(png, rendered(figure, "png"))
    return Picture(text_of(figure, "title"), _description(figure), bool(text_of(figure, "message")), svg, png)


def rendered(figure: Figure, form: Literal["svg", "png"]) -> bytes:
    """A figure as the bytes of a file, with title and caption in its metadata. No date, no version, no random id."""
    about = {"Title": text_of(figure, "title"), "Description": _description(figure)}
    about |= {"Creator": "OpenConductor", "Date": None} if form == "svg" else {"Software": "OpenConductor"}
    stream = io.BytesIO()
    with styled():
        figure.savefig(stream, format=form, metadata=about)
    return stream.getvalue()


def _description(figure: Figure) -> str:
    return " ".join(filter(None, (text_of(figure, "message"), text_of(figure, "caption"))))
