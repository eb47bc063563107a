# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Figures as files: SVG and PNG, the same bytes whenever they are drawn of the same numbers.

``draw`` makes one figure, ``save_all`` writes all that there is material for. A reader never sees a
file half-written.
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
from openconductor.plots.iterations import Iteration, read_iterations, read_terms
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
        title: the topic.
        caption: the counts and the kind of intervals; of an empty figure the reason.
        empty: True if it says in words why there is nothing to draw.
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
    """Draw every figure that there is material for; write each as ``<name>.svg`` and ``.png``.

    Args:
        records: of an evaluation, of all systems; empty: only the training's figures are drawn.
        folder: the folder of the files; made if missing. Files of the same names are replaced.
        curves: a training's run folder, or its ``curves.jsonl``; None: only the evaluation's
            figures are drawn.
        workers: the workers' names by ordinal.
        system: the system that they are about; None: ``conductor``, else the first that plans.

    Returns:
        The pictures, by the figure's name.

    Raises:
        ConfigError: matplotlib is not installed, the curve cannot be read, or there is neither a
            record nor a curve.
        JournalError: a file could not be written.
    """
    if not records and curves is None:
        raise ConfigError(
            "plots: got no record and no curve, "
            "expected one of them: an evaluation's or a training's"
        )
    curve: tuple[Iteration, ...] = ()
    terms = ""
    if curves is not None:
        curve, terms = read_iterations(curves), read_terms(curves)
    material = Material(records, workers or {}, curve, system, terms)
    folder = Path(folder)
    make_folder(folder)
    pictures: dict[str, Picture] = {}
    for name in FIGURES:
        wanted = curves is not None if name in OF_TRAINING else bool(records)
        if wanted:
            drawing = draw(name, material)
            svg, png = folder / f"{name}.svg", folder / f"{name}.png"
            write_whole(svg, rendered(drawing, "svg"))
            write_whole(png, rendered(drawing, "png"))
            pictures[name] = Picture(drawing.title, drawing.caption, drawing.empty, svg, png)
    return pictures


def draw(name: str, material: Material) -> Drawing:
    """Draw one figure of ``FIGURES``; in words if there is nothing to draw.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    title, plot = FIGURES[name]
    with styled():
        drawn = plot(material)
        if isinstance(drawn, str):
            figure, caption = in_words(drawn), drawn
        else:
            figure, caption = drawn
        finish(figure, title)
    return Drawing(title, caption, isinstance(drawn, str), figure)


def rendered(drawing: Drawing, form: Literal["svg", "png"]) -> bytes:
    """Return a figure as the bytes of a file, with title and caption in its metadata.

    The metadata holds no date, no version and no random id.
    """
    about = {"Title": drawing.title, "Description": drawing.caption}
    if form == "svg":
        about |= {"Creator": "OpenConductor", "Date": None}
    else:
        about |= {"Software": "OpenConductor"}
    stream = io.BytesIO()
    with styled():
        drawing.figure.savefig(stream, format=form, metadata=about)
    return stream.getvalue()
