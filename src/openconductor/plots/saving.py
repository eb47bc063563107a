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
from openconductor.plots.accuracy_cost import accuracy_cost
from openconductor.plots.iterations import read_curve, read_terms
from openconductor.plots.material import Material
from openconductor.plots.sheet import Drawn, finish, in_words, styled
from openconductor.plots.training import training_accuracy, worker_share
from openconductor.plots.workers import worker_kind, worker_rounds
from openconductor.plots.workflow_length import workflow_length
from openconductor.store.storage import make_folder, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, tuple[str, Callable[[Material], Drawn]]] = {
    "accuracy_cost": ("Accuracy against cost", accuracy_cost),
    "worker_kind": ("Right answers by kind of question", worker_kind),
    "workflow_length": ("Length of workflows", workflow_length),
    "worker_rounds": ("Workers in the first round and in later ones", worker_rounds),
    "training_accuracy": ("Format or orchestration: what the training gained", training_accuracy),
    "worker_share": ("Share of each worker over the training", worker_share),
}
"""The title and the function of each figure."""
OF_TRAINING = frozenset({"training_accuracy", "worker_share"})
"""The figures that are drawn from a curve; all others are drawn from records."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure with its words.

    Attributes:
        title: what it shows.
        caption: what was counted, and what the intervals are; of an empty figure why there is
            nothing to draw.
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
        folder: where the files go; made where it is not there. Files of the same names are
            replaced.
        curves: a training's run folder, or its ``curves.jsonl``; None draws the figures of the
            evaluation alone.
        workers: the workers' names by ordinal.
        system: which system they are about; by default ``conductor``, else the first that plans.

    Returns:
        What was drawn, by the figure's name.

    Raises:
        ConfigError: matplotlib is not installed, the curve cannot be read, or there is neither a
            record nor a curve.
        JournalError: a file could not be written.
    """
    if not records and curves is None:
        raise ConfigError(
            "plots: got no record and no curve, expected one of them: an evaluation's or a training's"
        )
    curve, said = ((), "") if curves is None else (read_curve(curves), read_terms(curves))
    material = Material(records, workers or {}, curve, system, said)
    make_folder(Path(folder))
    pictures: dict[str, Picture] = {}
    for name in FIGURES:
        if (curves is not None) if name in OF_TRAINING else records:
            drawing = draw(name, material)
            svg, png = (Path(folder) / f"{name}.{form}" for form in ("svg", "png"))
            write_whole(svg, rendered(drawing, "svg"))
            write_whole(png, rendered(drawing, "png"))
            pictures[name] = Picture(drawing.title, drawing.caption, drawing.empty, svg, png)
    return pictures


def draw(name: str, material: Material) -> Drawing:
    """One figure of ``FIGURES``; in words where there is nothing to draw.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    title, plot = FIGURES[name]
    with styled():
        drawn = plot(material)
        figure, caption = (in_words(drawn), drawn) if isinstance(drawn, str) else drawn
        finish(figure, title)
    return Drawing(title, caption, isinstance(drawn, str), figure)


def rendered(drawing: Drawing, form: Literal["svg", "png"]) -> bytes:
    """A figure as the bytes of a file, with title and caption in its metadata. No date, no version, no random id."""
    about = {"Title": drawing.title, "Description": drawing.caption}
    about |= (
        {"Creator": "OpenConductor", "Date": None}
        if form == "svg"
        else {"Software": "OpenConductor"}
    )
    stream = io.BytesIO()
    with styled():
        drawing.figure.savefig(stream, format=form, metadata=about)
    return stream.getvalue()
