"""A report as files: ``report.json``, figures, and one page; and the report of a folder, with all that must be checked.

In: the folder of an evaluation. Out: a Report, and beside it the folder's ``report/``.

Two evaluations are only compared where both asked the same questions of the same workers: ids alone do not tell, for
another seed gives the same ids to other questions. So what the folders say of their inputs must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from openconductor.errors import ConfigError
from openconductor.evaluation.counterfactual import Counterfactuals
from openconductor.evaluation.folder import read_folder
from openconductor.evaluation.results import Results
from openconductor.evaluation.specs import CONDUCTOR
from openconductor.reporting.report import Report, make_report
from openconductor.storage import make_folder, write_whole

REPORT = "report.json"
PAGE = "report.html"
FIGURES = "figures"
_WORKER = ("ordinal", "name", "identity", "sampling")


@dataclass(frozen=True, slots=True)
class Written:
    """The files of a report.

    Attributes:
        report: its values, as JSON.
        page: the HTML page, which needs no other file.
        figures: the SVG files by the figures' names; none without matplotlib. PNG files lie beside them.
    """

    report: Path
    page: Path
    figures: Mapping[str, Path]


def report_of(
    folder: Path,
    *,
    system: str | None = None,
    before: Path | None = None,
    training_folder: Path | None = None,
    found: Counterfactuals | None = None,
    results: Results | None = None,
) -> Report:
    """The report of an evaluation's folder.

    Args:
        folder: the evaluation's.
        system: which system is reported on; by default ``conductor``, else the first one that plans.
        before: the folder of an evaluation of the untrained Conductor, on the same questions and workers.
        training_folder: a training's run, or its ``curves.jsonl``.
        found: what replays have shown (``report.replayed``).
        results: what the folder holds, where it is loaded already.

    Raises:
        ConfigError: a folder holds no evaluation, the system is not in it, or the other folder asked other questions.
        JournalError: a journal cannot be read.
    """
    results = results or Results.load(folder)
    earlier = None
    if before is not None:
        refuse_other_questions(folder, before)
        earlier = Results.load(before)
    return make_report(
        results, system=chosen(results, system), before=earlier, training_folder=training_folder, found=found
    )


def chosen(results: Results, system: str | None) -> str:
    """The system that is reported on: the one that is named, else ``conductor``, else the first that plans.

    Raises:
        ConfigError: the named one has no record, or none plans.
    """
    there = [name for name in results.systems if results.of(name)]
    if system is not None:
        if system not in there:
            raise ConfigError(
                f"system: got {system!r}, expected one of {', '.join(there) or 'none: no record is there'}"
            )
        return system
    if CONDUCTOR in there:
        return CONDUCTOR
    planning = [name for name in there if any(one.planned for record in results.of(name) for one in record.rounds)]
    if not planning:
        raise ConfigError(
            f"report: no system here writes plans, expected one, or --system with one of {', '.join(there) or 'none'}"
        )
    return planning[0]


def refuse_other_questions(folder: Path, before: Path) -> None:
    """Make sure that two evaluations asked the same questions of the same workers.

    Raises:
        ConfigError: they did not; the message says what differs.
    """
    now, then = _inputs(folder), _inputs(before)
    tasks, others = _by_name(now.get("tasks")), _by_name(then.get("tasks"))
    shared = [name for name in tasks if name in others]
    if not shared:
        raise ConfigError(f"before: got tasks {_listed(others)}, expected those of {folder}: {_listed(tasks)}")
    for name in shared:
        if tasks[name].get("digest") != others[name].get("digest"):
            raise ConfigError(
                f"before: task {name}: got {others[name].get('problems')} other questions than the "
                f"{tasks[name].get('problems')} of {folder}; expected the same: one split, limit and seed for both"
            )
    if _workers(now) != _workers(then):
        raise ConfigError(
            f"before: got other workers than {folder} has, expected the same pool and setting: else nobody can tell "
            "the Conductor's gain from the pool's"
        )


def write_report(
    report: Report, folder: Path, out: Path, *, curves: Path | None = None, results: Results | None = None
) -> Written:
    """Write a report's files.

    Args:
        report: the report.
        folder: the evaluation's that it was made of, for the figures and for what the page says of the run.
        out: the folder; made where it is not there. Files of the same names are replaced.
        curves: a training's run folder or curve, for its figures.
        results: what the evaluation's folder holds, where it is loaded already.

    Raises:
        ConfigError: the curve cannot be read.
        JournalError: a file could not be written.
    """
    from openconductor.reporting.page import write_page

    results = results or Results.load(folder)
    _, environment = read_folder(folder)
    make_folder(out)
    values = json.dumps(report.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(out / REPORT, values + "\n")
    figures: dict[str, Path] = {}
    if can_draw():
        from openconductor.plots import save_all

        about = report.orchestration.system
        drawn = save_all(results.records, out / FIGURES, curves, workers=results.workers, system=about)
        figures = {path.stem: path for path in drawn if path.suffix == ".svg"}
    write_page(report, figures, out / PAGE, results=results, environment=environment)
    return Written(out / REPORT, out / PAGE, figures)


def can_draw() -> bool:
    """Whether matplotlib is there (the extra ``plots``)."""
    return find_spec("matplotlib") is not None


def _inputs(folder: Path) -> Mapping[str, object]:
    _, environment = read_folder(folder)
    inputs = environment.get("inputs")
    if not isinstance(inputs, dict):
        raise ConfigError(f"{folder}: its environment.json says nothing of its inputs, expected an evaluation's folder")
    return cast("Mapping[str, object]", inputs)


def _by_name(tasks: object) -> Mapping[str, Mapping[str, object]]:
    return cast("Mapping[str, Mapping[str, object]]", tasks) if isinstance(tasks, dict) else {}


def _workers(inputs: Mapping[str, object]) -> list[list[object]]:
    """What tells workers apart, but for their prices."""
    workers = cast("list[Mapping[str, object]]", inputs.get("workers") or [])
    return [[worker.get(name) for name in _WORKER] for worker in workers]


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"
