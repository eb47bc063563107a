"""The pages about trainings: curves of one, several over each other, and what was sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

from starlette.requests import Request

from openconductor.plots.iterations import Iteration, read_iterations
from openconductor.report.runs.run_folders import CURVE, RESULTS, RunFolder
from openconductor.store import read_store
from openconductor.store.serialisation import plain
from openconductor.training.curves import read_curve, warnings
from openconductor.ui.charts import Chart, draw_chart
from openconductor.ui.door import Visitor
from openconductor.ui.pages import Texts, colour_class
from openconductor.ui.replies import Page, PageProblem, read_page
from openconductor.ui.runs import Runs

ROWS = 25
"""Iterations of a page of the table."""
ROLLOUTS = 32
"""Rollouts of a page, at most; a group is not parted."""
MOST_RUNS = 8
"""The most trainings over each other."""

MEASURES = {
    "reward": ("reward", ".3f"),
    "validity": ("validity", ".1%"),
    "accuracy": ("accuracy", ".1%"),
    "given_valid": ("accuracy given valid", ".1%"),
    "routing_entropy": ("routing entropy, bits", ".2f"),
    "subtask_entropy": ("entropy a subtask, bits", ".2f"),
    "steps": ("steps", ".2f"),
    "masked_share": ("masked", ".1%"),
    "truncated": ("truncated", ".1%"),
    "alike": ("groups alike", ".1%"),
    "tokens": ("tokens", ".0f"),
    "dollars": ("dollars", ".4f"),
    "seconds": ("seconds", ".1f"),
}
"""The measures of an ``Iteration``: each with its name and the form of its values."""
_CHARTS = {
    "Does it learn?": ("accuracy", "given_valid", "validity", "reward"),
    "How open the routing is": ("routing_entropy", "subtask_entropy"),
    "What teaches nothing": ("masked_share", "truncated", "alike"),
    "Seconds an iteration": ("seconds",),
}
_COMPARED = (*_CHARTS["Does it learn?"], "routing_entropy")
_HALO = {"given_valid": "halo"}  # wide and pale, as it often is the accuracy
_LOOKS = ("s0", "s6", "s3", "s5", "s1", "s2", "s4", "s7")  # of trainings, by their place


@dataclass(frozen=True, slots=True)
class TrainingPages:
    """Shows trainings, which ``runs`` finds."""

    runs: Runs

    def training(self, request: Request, visitor: Visitor) -> Page:
        """Show the curves of a training."""
        run = self.runs.named(request, visitor)
        course = read_training(run)
        curve = course.curve
        page = read_page(request.query_params)
        end = len(curve) - (page - 1) * ROWS
        results = run.read_json(RESULTS)
        values = {
            "run": run,
            "course": course,
            "measures": MEASURES,
            "workers": list(_columns(curve, "worker_share")),
            "page": page,
            "shown": range(end - 1, max(-1, end - 1 - ROWS), -1),
            "results": results,
        }

        def data() -> object:
            return plain({"run": run, "results": results, "curve": columns_of(curve)})

        return Page("training", f"Training {run.name}", values, data)

    def compare(self, request: Request, visitor: Visitor) -> Page:
        """Show trainings over each other."""
        curves: dict[str, Sequence[Iteration]] = {}
        for name in request.query_params.getlist("run")[:MOST_RUNS]:
            curves[name] = read_training(self.runs.find(name, "training", visitor)).curve
        charts: list[Chart] = []
        for measure in _COMPARED:
            series = {name: _column(curve, measure) for name, curve in curves.items()}
            title, _ = MEASURES[measure]
            charts.append(_draw(title.capitalize(), series, measure, looks=_LOOKS))
        values = {"curves": curves, "charts": charts, "measures": MEASURES}

        def data() -> object:
            return {name: columns_of(curve) for name, curve in curves.items()}

        return Page("trainings", "Trainings over each other", values, data)

    def iteration(self, request: Request, visitor: Visitor) -> Page:
        """Show the rollouts of an iteration, group by group."""
        run = self.runs.named(request, visitor)
        curve = read_training(run).curve
        number: int = request.path_params["number"]
        if number >= len(curve):
            raise PageProblem(404, f"This training has no iteration {number} yet.")
        table = "imitate" if curve[number].phase == "imitate" else "rollout"
        group = run.recipe.get(table, {}).get("completions", 1)
        most = max(group, ROLLOUTS - ROLLOUTS % group)
        page = read_page(request.query_params)
        start = (page - 1) * most
        second = f"iteration {number}, round 1/"
        again = request.query_params.get("round") == "2"
        shown = second if again else f"iteration {number}/"
        rollouts: list[Mapping[str, Any]] = []
        with read_store(run.journal) as store:
            has_second = store.find_record(f"{second}0") is not None
            for place in range(start, start + most + 1):
                record = store.find_record(f"{shown}{place}")
                if record is not None:
                    rollouts.append(record)
        data = {"measures": curve[number], "rollouts": rollouts[:most], "page": page}
        values = {
            **data,
            "run": run,
            "number": number,
            "curve": curve,
            "again": again,
            "names": MEASURES,
            "has_second": has_second,
            "more": len(rollouts) > most,
            "cut": Texts(2 * most),
        }
        return Page("iteration", f"Iteration {number} of {run.name}", values, lambda: plain(data))


class TrainingSoFar(NamedTuple):
    """A training so far: its iterations, their charts, and what is worrying in them."""

    curve: Sequence[Iteration]
    charts: Sequence[Chart]
    warnings: Sequence[str]


def read_training(run: RunFolder) -> TrainingSoFar:
    """Return a training so far.

    Raises:
        ConfigError: its curve is none.
    """
    path = run.folder / CURVE
    if not path.is_file():
        return TrainingSoFar((), (), ())
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> TrainingSoFar:
    """Read and draw a curve; anew if the file has changed."""
    curve = read_iterations(path)
    records = [record for record in read_curve(path) if record.get("phase") != "imitate"]
    return TrainingSoFar(curve, draw_training(curve), warnings(records))


def columns_of(curve: Sequence[Iteration]) -> dict[str, list[float | None]]:
    """Return all measures of a curve, by name; those of a table as ``table/name``."""
    columns = {name: _column(curve, name) for name in MEASURES}
    for table in ("worker_share", "steps_by_kind"):
        for name, values in _columns(curve, table).items():
            columns[f"{table}/{name}"] = values
    return columns


def draw_training(curve: Sequence[Iteration]) -> list[Chart]:
    """Draw the curves of a training."""
    breaks = [at for at in range(1, len(curve)) if curve[at].phase != curve[at - 1].phase]
    charts: list[Chart] = []
    for title, names in _CHARTS.items():
        series = {MEASURES[name][0]: _column(curve, name) for name in names}
        looks = [_HALO.get(name, f"s{place}") for place, name in enumerate(names)]
        charts.append(_draw(title, series, names[0], breaks=breaks, looks=looks))
    shares = _columns(curve, "worker_share")
    looks = [colour_class(ordinal) for ordinal in range(len(shares))]
    who = draw_chart("Who works: shares of the steps", shares, top=1.0, looks=looks, stacked=True)
    charts.insert(1, who)
    steps = _columns(curve, "steps_by_kind")
    charts.append(draw_chart("Steps a workflow, by kind", steps, form=".2f", breaks=breaks))
    dollars = {"dollars": list(accumulate(iteration.dollars for iteration in curve))}
    charts.append(_draw("Dollars so far", dollars, "dollars", breaks=breaks))
    return charts


def _draw(
    title: str, series: Mapping[str, Sequence[float | None]], name: str, **more: Any
) -> Chart:
    """Draw series of a measure; the axis of shares ends at 1."""
    _, form = MEASURES[name]
    top = 1.0 if form == ".1%" or name == "reward" else None
    return draw_chart(title, series, form=form, top=top, **more)


def _column(curve: Sequence[Iteration], name: str) -> list[float | None]:
    return [_rounded(getattr(iteration, name)) for iteration in curve]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _columns(curve: Sequence[Iteration], table: str) -> dict[str, list[float | None]]:
    """Return the values of a table of the iterations, by name."""
    tables: list[Mapping[str, float]] = [getattr(iteration, table) for iteration in curve]
    columns: dict[str, list[float | None]] = {}
    for name in dict.fromkeys(chain.from_iterable(tables)):
        columns[name] = [_rounded(values.get(name)) for values in tables]
    return columns
