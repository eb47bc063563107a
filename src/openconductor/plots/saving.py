# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Figures as files: SVG and PNG, byte for byte the same whenever they are drawn of the same numbers.

In: Records and a curve. Out: Drawings; bytes; files that a reader never sees half-written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from openconductor.errors import ConfigError
from openconductor.evaluation.records import Record
from openconductor.plots import headroom, training, workers, workflows
from openconductor.plots.accuracy_cost import accuracy_cost
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material
from openconductor.plots.sheet import Drawn, blank, finish, styled
from openconductor.storage import make_folder, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, tuple[str, Callable[[Material], Drawn]]] = {
    "accuracy_cost": ("Accuracy against cost", accuracy_cost),
    "headroom": ("Headroom won, and regret", headroom.headroom),
    "worker_kind": ("Workers by kind of question", workers.worker_kind),
    "workflow_length": ("Length of workflows", workflows.workflow_length),
    "topology_kind": ("Shapes of workflows by kind of question", workflows.topology_kind),
    "worker_rounds": ("Workers in the first round and in later ones", workers.worker_rounds),
    "training_accuracy": ("Accuracy in training, against each worker alone", training.training_accuracy),
    "format_gain": ("Format or orchestration: what the training gained", training.format_gain),
    "worker_share": ("Share of each worker over the training", training.worker_share),
}
"""The title and the function of each figure."""
OF_TRAINING = frozenset({"training_accuracy", "format_gain", "worker_share"})
"""The figures that are drawn from a curve; all others are drawn from records."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure with its words.

    Attributes:
        title: what it shows.
        caption: what was counted, and what the intervals are; of an empty figure why there is nothing to draw.
        empty: whether it says in words why there is nothing to draw.
        figure: matplotlib's.
    """

    title: str
    caption: str
    empty: bool
    figure: Figure


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that was written: the words of its Drawing, and its files."""

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
    if not records and curves is None:
        raise ConfigError("plots: got no record and no curve, expected one of them: an evaluation's or a training's")
    material = Material(records, workers or {}, read_curve(curves) if curves is not None else (), system)
    there = [name for name in FIGURES if ((curves is not None) if name in OF_TRAINING else records)]
    return {name: save(draw(name, material), folder, name) for name in there}


def draw(name: str, material: Material) -> Drawing:
    """One figure of ``FIGURES``; in words where there is nothing to draw.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    title, plot = FIGURES[name]
    with styled():
        drawn = plot(material)
        empty = isinstance(drawn, str)
        figure, caption = (blank(), drawn) if empty else drawn
        finish(figure, title, caption)
    return Drawing(title, caption, empty, figure)


def save(drawing: Drawing, folder: Path | str, name: str) -> Picture:
    """Write a figure as SVG and PNG.

    Raises:
        JournalError: a file could not be written.
    """
    svg, png = (Path(folder) / f"{name}.{form}" for form in ("svg", "png"))
    make_folder(svg.parent)
    write_whole(svg, rendered(drawing, "svg"))
    write_whole(png, rendered(drawing, "png"))
    return Picture(drawing.title, drawing.caption, drawing.empty, svg, png)


def rendered(drawing: Drawing, form: Literal["svg", "png"]) -> bytes:
    """A figure as the bytes of a file, with title and caption in its metadata. No date, no version, no random id."""
    about = {"Title": drawing.title, "Description": drawing.caption}
    about |= {"Creator": "OpenConductor", "Date": None} if form == "svg" else {"Software": "OpenConductor"}
    stream = io.BytesIO()
    with styled():
        drawing.figure.savefig(stream, format=form, metadata=about)
    return stream.getvalue()
