"""The report's files: ``report.json``, ``figures/``, and ``report.html``, which needs nothing else.

``write_report`` writes them, ``render`` makes the page: for screens, light and dark, and for paper.
The same report and figures give the same bytes.

The page is ``page.html.j2`` with ``page.css``. Its content security policy forbids everything but
that style sheet (by its hash) and images that the page holds. Jinja escapes all text, so a worker
named ``<script>`` is harmless.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openconductor.config import needing
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
from openconductor.report.answers import Answer, read_examples
from openconductor.report.report import Report
from openconductor.report.sections import INTERVAL, heading, sections
from openconductor.store.storage import make_folder, write_whole

if TYPE_CHECKING:
    from jinja2 import Template

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
        results: the results that it was made of.
        folder: the evaluation's, for what the page says of the run.
        out: the folder of the files; made if missing. Files of the same names are replaced.
        curves: a training's run folder or curve, for its figures.
        old: the evaluation of the untrained system, for figures.

    Returns:
        Their places: ``report`` (values as JSON), ``page`` (HTML, which needs no other file; None
        without the extra ``plots``), ``figures`` (SVG files by name, PNG files beside them; empty
        without the extra).

    Raises:
        ConfigError: the curve cannot be read.
        JournalError: a file could not be written.
    """
    make_folder(out)
    values = json.dumps(report.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    file = out / "report.json"
    write_whole(file, values + "\n")
    written: dict[str, Any] = {"report": str(file), "page": None, "figures": {}}
    if not can_draw():
        return written
    from openconductor.plots import save_all

    system = report.orchestration.system
    records = list(results.records)
    if old is not None:
        earlier = old.of(system) or old.of(CONDUCTOR)
        records += [replace(record, system=UNTRAINED) for record in earlier]
    pictures = save_all(records, out / "figures", curves, workers=results.workers, system=system)
    _, environment = read_folder(folder)
    best = report.orchestration.best_single
    alone = () if best is None else results.of(best.system)
    examples = read_examples(folder, results.of(system), alone)
    page = out / "report.html"
    write_whole(page, render(report, pictures, results, environment, examples))
    written["page"] = str(page)
    written["figures"] = {name: str(picture.svg) for name, picture in pictures.items()}
    return written


def can_draw() -> bool:
    """Return True if the extra ``plots`` is installed."""
    return all(find_spec(name) for name in ("matplotlib", "jinja2"))


def render(
    report: Report,
    figures: Mapping[str, Picture],
    results: Results,
    environment: Mapping[str, object],
    examples: Mapping[str, Answer] | None = None,
) -> str:
    """Return the text of the page.

    Args:
        report: the report.
        figures: the pictures of ``plots.save_all``, by the figure's name.
        results: the results that the report was made of, for costs and the recipe.
        environment: the environment of the run (``read_folder``): versions and the data.
        examples: answers to show, by what they are examples of; None: none.

    Raises:
        ConfigError: Jinja2 is not installed; the message says the command that installs it.
    """
    style = files("openconductor.report").joinpath("page.css").read_text("utf-8")
    digest = _encoded(sha256(style.encode()).digest())
    parts = list(sections(report))
    placed = {name for part in parts for name in part.figures}
    more = [name for name in figures if name not in placed]
    seconds = {(row["system"], row["task"]): row for row in latency(results)}
    text = _load_template().render(
        report=report,
        heading=heading(report),
        style=style,
        digest=digest,
        sections=parts,
        figures=figures,
        more=more,
        results=results,
        table=make_table(results),
        seconds=seconds,
        environment=environment,
        examples=examples,
        recipe=dump_eval_config(results.config),
    )
    return words.INVISIBLE.sub("\ufffd", text.lstrip())


def _load_template() -> Template:
    """Return the page's template, with the words and functions that it uses."""
    with needing("page", "plots"):
        from jinja2 import Environment, PackageLoader, StrictUndefined

    maker = Environment(
        loader=PackageLoader("openconductor.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    maker.filters["number"] = words.three_digits
    shared = {
        "words": words,
        "interval": INTERVAL,
        "masked": MASKED,
        "order": GROUPS,
        "group_of": group_of,
        "short_name": short_name,
        "mean_interval": mean_interval,
        "encoded": _encoded,
    }
    return maker.get_template("page.html.j2", globals=shared)


def _encoded(content: bytes) -> str:
    return b64encode(content).decode()
