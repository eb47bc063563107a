"""The pages about trainings: curves of one, several over each other, and what was sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from openconductor.plots.iterations import make_iteration
from openconductor.store import read_store
from openconductor.store.serialisation import plain
from openconductor.training.curves import Record, read_curve, warnings
from openconductor.ui.changes import Changes, PageState
from openconductor.ui.charts import Chart, draw_chart
from openconductor.ui.door import Visitor
from openconductor.ui.entrance import Entrance
from openconductor.ui.pages import Texts, colour_class
from openconductor.ui.replies import Page, PageProblem, read_page
from openconductor.ui.runs import CURVE, RESULTS, RunFolder, Runs

POLL_S = 2.0
"""How often a training that is looked at is looked for changes."""
ROWS = 25
"""Iterations of a page of the table."""
ROLLOUTS = 32
"""Rollouts of a page, at most; a group is not parted."""
MOST_RUNS = 8
"""The most trainings over each other."""

MEASURES = {
    "reward": ".3f",
    "validity": ".1%",
    "accuracy": ".1%",
    "accuracy given valid": ".1%",
    "routing entropy, bits": ".2f",
    "entropy a subtask, bits": ".2f",
    "steps": ".2f",
    "masked": ".1%",
    "truncated": ".1%",
    "groups alike": ".1%",
    "tokens": ".0f",
    "dollars": ".4f",
    "seconds": ".1f",
}
"""The measures of an iteration, as the table has them, with the form of their values."""
_CHARTS = {
    "Does it learn?": ("accuracy", "accuracy given valid", "validity", "reward"),
    "How open the routing is": ("routing entropy, bits", "entropy a subtask, bits"),
    "What teaches nothing": ("masked", "truncated", "groups alike"),
    "Seconds an iteration": ("seconds",),
}
_COMPARED = ("accuracy", "accuracy given valid", "validity", "reward", "routing entropy, bits")
_LOOKS = ("s0", "s6", "s3", "s5", "s1", "s2", "s4", "s7")  # of trainings, by their place

Row = Mapping[str, float | None]
"""An iteration's value of each measure; None: nothing could be measured."""


class TrainingPages:
    """Shows trainings.

    Args:
        runs: finds them.
        entrance: knows who asks.
        changes: tells open pages of changes.
    """

    def __init__(self, runs: Runs, entrance: Entrance, changes: Changes) -> None:
        self._runs = runs
        self._entrance = entrance
        self._changes = changes

    def _find(self, request: Request, visitor: Visitor) -> RunFolder:
        return self._runs.find(request.path_params["run"], "training", visitor)

    def training(self, request: Request, visitor: Visitor) -> Page:
        """Show the curves of a training."""
        run = self._find(request, visitor)
        records, rows = read_training(run)
        page = read_page(request)
        grpo = [record for record in records if record.get("phase") != "imitate"]
        end = len(rows) - (page - 1) * ROWS
        data = {"run": run, "records": records, "results": run.read_json(RESULTS)}
        values: dict[str, object] = dict(data, rows=rows, page=page, measures=MEASURES)
        values["shown"] = range(end - 1, max(-1, end - 1 - ROWS), -1)
        values["charts"] = draw_training(records, rows)
        values["warnings"] = warnings(grpo)
        return Page("training", f"Training {run.name}", values, lambda: plain(data))

    async def changes(self, request: Request) -> Response:
        """Tell of changes of a training."""
        visitor = self._entrance.visitor(request)
        self._find(request, visitor)

        def look() -> PageState:
            run = self._find(request, visitor)
            return PageState(run.version, ended=run.state != "running")

        return self._changes.stream(request, look, POLL_S)

    def compare(self, request: Request, visitor: Visitor) -> Page:
        """Show trainings over each other."""
        names = dict.fromkeys(request.query_params.getlist("run")[:MOST_RUNS])
        curves: dict[str, Sequence[Row]] = {}
        for name in names:
            _, curves[name] = read_training(self._runs.find(name, "training", visitor))
        charts: list[Chart] = []
        for measure in _COMPARED:
            series = {name: [row[measure] for row in rows] for name, rows in curves.items()}
            charts.append(_draw(measure.capitalize(), series, measure, looks=_LOOKS))
        values = {"curves": curves, "charts": charts, "measures": MEASURES}
        return Page("trainings", "Trainings over each other", values, lambda: curves)

    def iteration(self, request: Request, visitor: Visitor) -> Page:
        """Show the rollouts of an iteration, group by group."""
        run = self._find(request, visitor)
        records, rows = read_training(run)
        number: int = request.path_params["number"]
        if number >= len(records):
            raise PageProblem(404, f"This training has no iteration {number} yet.")
        table = "imitate" if records[number].get("phase") == "imitate" else "rollout"
        group = min(ROLLOUTS, run.recipe.get(table, {}).get("completions", ROLLOUTS))
        most = ROLLOUTS // group * group
        page = read_page(request)
        start = (page - 1) * most
        first, second = f"iteration {number}/", f"iteration {number}, round 1/"
        again = request.query_params.get("round") == "2"
        rollouts: list[Mapping[str, Any]] = []
        with read_store(run.journal) as store:
            has_second = store.find_record(f"{second}0") is not None
            for place in range(start, start + most + 1):
                record = store.find_record(f"{second if again else first}{place}")
                if record is not None:
                    rollouts.append(record)
        data = {"record": records[number], "rollouts": rollouts[:most], "page": page}
        values: dict[str, object] = dict(data, run=run, number=number, row=rows[number])
        values["measures"] = MEASURES
        values["is_last"] = number == len(records) - 1
        values["has_second"] = has_second
        values["again"] = again
        values["more"] = len(rollouts) > most
        values["cut"] = Texts(2 * most)
        return Page("iteration", f"Iteration {number} of {run.name}", values, lambda: data)


# ── values ────────────────────────────────────────────────────────────────────────────────────────
def read_training(run: RunFolder) -> tuple[Sequence[Record], Sequence[Row]]:
    """Return the records of a training, and the measures of each.

    Raises:
        PageProblem: its curve is none.
    """
    path = run.folder / CURVE
    changed = path.stat().st_mtime_ns if path.is_file() else 0
    try:
        return _read(path, changed)
    except (KeyError, TypeError, AttributeError) as error:
        raise PageProblem(500, f"{path} is not the curve of a training: {error!r}") from error


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> tuple[Sequence[Record], Sequence[Row]]:
    """Read a curve; anew if the file has changed."""
    records = read_curve(path)
    return records, [measure(record) for record in records]


def measure(record: Record) -> Row:
    """Return the measures of an iteration, by the names of ``MEASURES``."""
    iteration = make_iteration(record)
    decided = iteration.rollouts - iteration.masked
    steps = [*record["steps_by_kind"].values()]
    row: dict[str, float | None] = {}
    row["reward"] = record.get("reward") if decided else None
    row["validity"] = iteration.validity
    row["accuracy"] = iteration.accuracy
    row["accuracy given valid"] = iteration.given_valid
    row["routing entropy, bits"] = iteration.routing_entropy
    row["entropy a subtask, bits"] = record.get("routing_entropy_by_subtask_bits")
    row["steps"] = fmean(steps) if steps else None
    row["masked"] = iteration.masked / max(1, iteration.rollouts)
    row["truncated"] = record.get("truncated") if decided else None
    row["groups alike"] = record.get("groups_without_spread")
    row["tokens"] = record.get("completion_tokens")
    row["dollars"] = decided * record.get("dollars", 0.0)
    row["seconds"] = record.get("seconds")
    return row


# ── figures ───────────────────────────────────────────────────────────────────────────────────────
def draw_training(records: Sequence[Record], rows: Sequence[Row]) -> list[Chart]:
    """Draw the curves of a training."""
    phases = [record.get("phase") for record in records]
    breaks = [at for at in range(1, len(phases)) if phases[at] != phases[at - 1]]
    charts: list[Chart] = []
    for title, names in _CHARTS.items():
        series = {name: [row[name] for row in rows] for name in names}
        charts.append(_draw(title, series, names[0], breaks=breaks))
    shares = _columns(records, "worker_share")
    looks = [colour_class(ordinal) for ordinal in range(len(shares))]
    who = draw_chart("Who works: shares of the steps", shares, top=1.0, looks=looks, stacked=True)
    charts.insert(1, who)
    steps = _columns(records, "steps_by_kind")
    charts.append(draw_chart("Steps a workflow, by kind", steps, form=".2f", breaks=breaks))
    dollars = {"dollars": list(accumulate(row["dollars"] or 0.0 for row in rows))}
    charts.append(_draw("Dollars so far", dollars, "dollars", breaks=breaks))
    return charts


def _draw(
    title: str, series: Mapping[str, Sequence[float | None]], name: str, **more: Any
) -> Chart:
    """Draw series of a measure; the axis of shares ends at 1."""
    form = MEASURES[name]
    top = 1.0 if form == ".1%" or name == "reward" else None
    return draw_chart(title, series, form=form, top=top, **more)


def _columns(records: Sequence[Record], table: str) -> dict[str, list[float | None]]:
    """Return the values of a table in the records, by name."""
    names = dict.fromkeys(name for record in records for name in record[table])
    return {name: [record[table].get(name) for record in records] for name in names}
