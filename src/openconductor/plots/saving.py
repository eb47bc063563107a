# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""Figures as files: SVG and PNG, byte for byte the same whenever they are drawn of the same numbers.

In: a Figure, or Records and a curve. Out: bytes; files that a reader never sees half-written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from openconductor.errors import ConfigError
from openconductor.evaluation.records import Record
from openconductor.plots import FIGURES, OF_TRAINING
from openconductor.plots.extra import require_extra
from openconductor.plots.iterations import read_curve
from openconductor.plots.material import Material
from openconductor.plots.sheet import caption_of, message_of, styled, title_of
from openconductor.plots.words import printable
from openconductor.registry import load_registered
from openconductor.storage import make_folder, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["svg", "png"]
FORMATS: tuple[Format, ...] = ("svg", "png")
DOTS = 300
"""Dots an inch of a PNG."""
_MAKER = "OpenConductor"


def save_all(
    records: Sequence[Record],
    folder: Path | str,
    curves: Path | str | None = None,
    *,
    workers: Mapping[int, str] | None = None,
    system: str | None = None,
) -> list[Path]:
    """Draw every figure that there is material for, and write each as ``<name>.svg`` and ``<name>.png``.

    Args:
        records: of an evaluation, of all systems; none draws the figures of the training alone.
        folder: where the files go; made where it is not there. Files of the same names are replaced.
        curves: a training's run folder, or its ``curves.jsonl``; None draws the figures of the evaluation alone.
        workers: the workers' names by ordinal.
        system: which system they are about; by default ``conductor``, else the first that plans.

    Returns:
        The files, figure by figure.

    Raises:
        ConfigError: matplotlib is not installed, the curve cannot be read, or there is neither a record nor a curve.
        JournalError: a file could not be written.
    """
    folder = Path(folder)
    written: list[Path] = []
    for name, figure in draw_all(records, curves, workers=workers, system=system).items():
        written += save(figure, folder, name)
    return written


def draw_all(
    records: Sequence[Record],
    curves: Path | str | None = None,
    *,
    workers: Mapping[int, str] | None = None,
    system: str | None = None,
) -> dict[str, Figure]:
    """Every figure that there is material for, by name; arguments and errors as for ``save_all``."""
    require_extra()
    if not records and curves is None:
        raise ConfigError("plots: got no record and no curve, expected one of them: an evaluation's or a training's")
    results = Material(records, workers or {}, read_curve(curves) if curves is not None else (), system)
    found: dict[str, Figure] = {}
    for name in FIGURES:
        if (curves is not None) if name in OF_TRAINING else records:
            plot = cast("Callable[[Material], Figure]", load_registered(FIGURES, name, what="figure"))
            found[name] = plot(results)
    return found


def save(figure: Figure, folder: Path | str, name: str) -> list[Path]:
    """Write a figure as SVG and PNG.

    Raises:
        JournalError: a file could not be written.
    """
    folder = Path(folder)
    written: list[Path] = []
    for form in FORMATS:
        path = folder / f"{name}.{form}"
        content = rendered(figure, form)
        make_folder(folder)
        write_whole(path, content)
        written.append(path)
    return written


def rendered(figure: Figure, form: Format) -> bytes:
    """A figure as the bytes of a file, with title and caption in its metadata. No date, no version, no random id."""
    about = {
        "Title": title_of(figure),
        "Description": " ".join(filter(None, (message_of(figure), caption_of(figure)))),
    }
    about |= {"Creator": _MAKER, "Date": None} if form == "svg" else {"Software": _MAKER}
    for artist in figure.findobj():
        if name := artist.get_gid():  # an id of an element, and no XML may hold control characters
            artist.set_gid(printable(name))
    stream = io.BytesIO()
    with styled():
        figure.savefig(stream, format=form, dpi=DOTS, metadata=about)
    return stream.getvalue()
