"""The numbers of an evaluation as plain values, for the page: table, verdict, plane, answers.

    python -m openconductor.report.runs.numbers FOLDER

prints them as JSON. The page runs this as a process of its own, because reading an evaluation takes
memory and seconds that a server should not spend. All of them come from the functions that tables
and reports are made of.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openconductor.errors import ConfigError
from openconductor.evaluation.headroom import headroom
from openconductor.evaluation.records import Results
from openconductor.evaluation.sheets import read_questions
from openconductor.evaluation.tables import (
    Table,
    comparisons,
    details,
    first_table,
    make_table,
    user_costs,
)
from openconductor.measures import group_by
from openconductor.plots.accuracy_cost import GROUP_OF_BOUNDS, find_plane
from openconductor.plots.material import Material
from openconductor.report.replays import read_replays
from openconductor.report.report import Report, choose_system, make_report
from openconductor.report.sections import Section, pool_sections, sections
from openconductor.store.serialisation import plain
from openconductor.types import Usage

_MARGIN = 0.11
EXCERPT = 120
"""The characters of a question that a list shows."""
MARKS = {True: "+", False: "-", None: "?"}
"""The mark of an answer: right, wrong, or not decided."""


def read_numbers(folder: Path) -> dict[str, Any]:
    """Return the numbers of the evaluation in a folder, whole or not.

    - ``best_alone``: the worker alone that is right most often, as a system.
    - ``table``, ``tables``: its table as values, and as titles, heads and rows of texts.
    - ``plane``: accuracy against cost (a text: why there is none). Of each system ``x`` and ``y``
      (of the share and its interval) are per cent from the left and from the top; ``axis`` has the
      costs at the left, in the middle and at the right.
    - ``report``: the verdict and its figures; None, and ``no_report`` says why.
    - ``sections``: the parts of the report, and those of the pool.
    - ``questions``: each with the marks of every system, in their order (``++ -?`` of two systems
      and repeats), and tags: ``apart``: some systems are right and others not; ``nobody``: none
      is right; ``lost``: another one is right, and the one that is reported on is not.

    Raises:
        ConfigError: the folder holds no evaluation.
        JournalError: its journal cannot be read.
    """
    results = Results.load(folder)
    report, why = _read_report(results, folder)
    parts = [] if report is None else list(sections(report))
    values = _read_kept(folder)
    if values is None and report is not None:
        values = report.to_json()
    room = headroom(results.records, seed=results.config.seed or 0)
    if room is not None:
        names = {part.title for part in parts}
        pool_parts = pool_sections(room, user_costs(results))
        parts += [part for part in pool_parts if part.title not in names]
    table = make_table(results)
    ours = "" if values is None else values["system"]
    return {
        "name": results.config.name,
        "systems": results.systems,
        "ours": ours,
        "best_alone": table.best_worker,
        "workers": list(results.workers.values()),
        "spent": plain(sum((record.usage for record in results.records), Usage())),
        "table": table.to_json(),
        "tables": list(_write_tables(table, results)),
        "plane": _place_systems(results, ours),
        "report": values,
        "no_report": why,
        "sections": [_write_section(part) for part in parts],
        "questions": list(_mark_questions(results, folder, ours)),
    }


def _read_report(results: Results, folder: Path) -> tuple[Report | None, str]:
    """Return the report with the replays that the folder keeps; None: a text says why not."""
    try:
        system = choose_system(results, None)
        replays = read_replays(results, folder, system)
        return make_report(results, system=system, replays=replays, folder=folder), ""
    except ConfigError as error:
        return None, str(error)


def _read_kept(folder: Path) -> dict[str, Any] | None:
    """Return the report that ``openconductor report`` wrote of these answers; None: there is none.

    It knows replays that cost nothing, which are made anew for each report and not kept.
    """
    file = folder / "report" / "report.json"
    table = folder / "table.json"
    if file.is_file() and table.is_file() and file.stat().st_mtime >= table.stat().st_mtime:
        return json.loads(file.read_text("utf-8"))
    return None


def _write_tables(table: Table, results: Results) -> Iterator[dict[str, Any]]:
    """Yield the tables as the command line and the Markdown file have them."""
    forms = {
        "Accuracy and cost": first_table(table, results),
        f"Against {table.against}": comparisons(table),
        "Cost and form, a question": details(table),
    }
    for title, (head, rows) in forms.items():
        if rows:
            yield {"title": title, "head": head, "rows": rows}


def _write_section(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "lines": section.lines,
        "head": section.head,
        "rows": section.rows,
        "words": sorted(section.words),
        "marked": section.marked,
    }


def _place_systems(results: Results, ours: str) -> dict[str, Any] | str:
    plane = find_plane(Material(results.records, results.workers, system=ours or None))
    if isinstance(plane, str):
        return plane
    # Costs stand on a logarithmic axis, which begins and ends a little beside them.
    logs = {place.name: math.log10(place.cost.value) for place in plane.places}
    low = min(logs.values()) - _MARGIN
    span = max(logs.values()) + _MARGIN - low
    places: dict[str, Any] = {}
    for place in plane.places:
        right = (place.right.value, place.right.low, place.right.high)
        across = (logs[place.name] - low) / span
        places[place.name] = {
            "cost": place.cost.value,
            "right": right,
            "is_bound": place.group == GROUP_OF_BOUNDS,
            "x": round(100 * across, 2),
            "y": [round(100 - 100 * share, 2) for share in right],
        }
    front = [place.name for place in plane.front]
    free: dict[str, float] = {}
    for place in plane.decided:
        if not place.cost.value:
            free[place.name] = place.right.value
    axis = [10 ** (low + span * share) for share in (0.0, 0.5, 1.0)]
    return {"unit": plane.unit, "places": places, "axis": axis, "front": front, "free": free}


def _mark_questions(results: Results, folder: Path, ours: str) -> Iterator[dict[str, Any]]:
    """Yield each question with the marks of every system, a mark a repeat, and its tags."""
    texts = read_questions(folder)
    for (task, problem), records in group_by(results.records, lambda record: record.key).items():
        marks = dict.fromkeys(results.systems, "")
        for record in records:
            marks[record.system] += MARKS[record.correct]
        right = [system for system in marks if "+" in marks[system]]
        tags = ["all"]
        if not right:
            tags.append("nobody")
        elif len(right) < len(marks):
            tags.append("apart")
        if right and ours and ours not in right:
            tags.append("lost")
        question, _ = texts.get((task, problem), ("", None))
        text = " ".join(question.split())[:EXCERPT]
        yield {
            "task": task,
            "problem": problem,
            "text": text,
            "marks": " ".join(marks.values()),
            "tags": tags,
        }


if __name__ == "__main__":
    json.dump(plain(read_numbers(Path(sys.argv[1]))), sys.stdout)
