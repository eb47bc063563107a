"""Rows and cases of ``cases/``, and tasks over rows that are written to a local file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openconductor.tasks import load_task
from openconductor.tasks.data.items import Benchmark, Item

CASES = Path(__file__).with_name("cases")
ROWS: dict[str, dict[str, Any]] = json.loads((CASES / "rows.json").read_text("utf-8"))
"""A row of each published or local shape."""


def read_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file; a case of a row has its ``changes`` in it."""
    cases = [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text("utf-8").splitlines()]
    for case in cases:
        if "changes" in case:
            case["row"] = {**ROWS.get(case["row"], {}), **case.pop("changes")}
    return cases


def write_rows(path: Path, rows: Sequence[object]) -> Path:
    """Write JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def task_of(folder: Path, name: str, *rows: object, **options: object) -> Benchmark:
    """Return the task over these rows."""
    return load_task(name, path=write_rows(folder / f"{name}.jsonl", rows), **options)


def items_of(folder: Path, name: str, *rows: object, **options: object) -> Sequence[Item]:
    """Return the items of these rows."""
    return task_of(folder, name, *rows, **options).read().items
