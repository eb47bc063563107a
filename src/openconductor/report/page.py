"""The report's files: its values, its figures, and one HTML file that needs nothing else: no network, no script.

In: a Report and the Results it was made of. Out: ``report.json``, ``figures/``, and
``report.html``: for screens, light and dark, and for paper; the same report and figures give the
same bytes.

The page is ``page.html.j2`` with ``page.css``. Its content security policy forbids everything but
that style sheet (by its hash) and images that the page holds. Jinja escapes all text, so a worker
named ``<script>`` is harmless.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import (
    CONDUCTOR,
    GROUPS,
    UNTRAINED,
    dump_eval_config,
    group_of,
    short_name,
)
from openconductor.evaluation.records import MASKED, Results, latency, read_folder
from openconductor.evaluation.statistics import mean_interval
from openconductor.evaluation.tables import make_table
from openconductor.report import words
from openconductor.report.report import Report
from openconductor.report.sections import INTERVAL, heading, sections
from openconductor.report.words import NOTHING
from openconductor.store.storage import make_folder, write_whole

if TYPE_CHECKING:
    from openconductor.plots import Picture


def write_report(
    report: Report,
    results: Results,
    folder: Path,
    out: Path,
    *,
    curves: Path | None = None,
    old: Results | None = None,
) -> dict[str, Any]:
    """Write a report's files.

    Args:
        report: the report.
        results: what it was made of.
        folder: the evaluation's, for what the page says of the run.
        out: where they go; made where it is not there. Files of the same names are replaced.
        curves: a training's run folder or curve, for its figures.
        old: the evaluation of the untrained system, for figures.

    Returns:
        Where they are: ``report`` (its values, as JSON), ``page`` (HTML, which needs no other file;
        None without the extra ``plots``), ``figures`` (SVG files by name, PNG files beside them;
        none without the extra).

    Raises:
        ConfigError: the curve cannot be read.
        JournalError: a file could not be written.
    """
    make_folder(out)
    values = json.dumps(report.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(out / "report.json", values + "\n")
    written: dict[str, Any] = {"report": str(out / "report.json"), "page": None, "figures": {}}
    if can_draw():
        from openconductor.plots import save_all

        about = report.orchestration.system
        earlier = () if old is None else old.of(about) or old.of(CONDUCTOR)
        records = [*results.records, *(replace(one, system=UNTRAINED) for one in earlier)]
        drawn = save_all(records, out / "figures", curves, workers=results.workers, system=about)
        write_whole(out / "report.html", render(report, drawn, results, read_folder(folder)[1]))
        written["page"] = str(out / "report.html")
        written["figures"] = {name: str(picture.svg) for name, picture in drawn.items()}
    return written


def can_draw() -> bool:
    """Whether the extra ``plots`` is installed."""
    return all(find_spec(name) is not None for name in ("matplotlib", "jinja2"))


def render(
    report: Report,
    figures: Mapping[str, Picture],
    results: Results,
    environment: Mapping[str, object],
) -> str:
    """The text of the page.

    Args:
        report: what it says.
        figures: what ``plots.save_all`` has drawn, by the figure's name.
        results: what the report was made of: what the systems cost, and the recipe.
        environment: what the run's folder says about where it was made (``read_folder``): versions
            and the data.

    Raises:
        ConfigError: Jinja2 is not installed; the message says the command that installs it.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        install = 'pip install "openconductor[plots]"'
        raise ConfigError(
            f"page: {error}; expected the extra 'plots' to be installed: {install}"
        ) from error

    maker = Environment(
        loader=PackageLoader("openconductor.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    maker.filters["number"] = _number
    style = files("openconductor.report").joinpath("page.css").read_text("utf-8")
    found, parts = report.orchestration, list(sections(report))
    placed = {name for part in parts for name in part.figures}
    text = maker.get_template("page.html.j2").render(
        report=report,
        found=found,
        heading=heading(report),
        style=style,
        digest=_encoded(sha256(style.encode()).digest()),
        sections=parts,
        figures=figures,
        more=[name for name in figures if name not in placed],
        results=results,
        table=make_table(results),
        interval=INTERVAL,
        masked=MASKED,
        mean_interval=mean_interval,
        order=GROUPS,
        group_of=group_of,
        short_name=short_name,
        seconds={(one["system"], one["task"]): one for one in latency(results)},
        environment=environment,
        recipe=dump_eval_config(results.config),
        words=words,
        encoded=_encoded,
    )
    # No HTML may hold control characters or lone surrogates.
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text.lstrip())


def _encoded(content: bytes) -> str:
    return b64encode(content).decode()


def _number(value: float | None) -> str:
    """A number with three digits that count.

    >>> [_number(value) for value in (None, 0.000012345, 0.0, 3.6499, 123.4, 123456.7)]
    ['-', '0.0000123', '0', '3.65', '123', '123,457']
    """
    if not value:
        return NOTHING if value is None else "0"
    return f"{value:,.{max(0, 2 - int(f'{value:e}'.partition('e')[2]))}f}"
