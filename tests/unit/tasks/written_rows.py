"""What the tests of the tasks' shapes share: a task over rows that are written to a local file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from openconductor.tasks import load_task
from openconductor.tasks.items import Benchmark, Item


def task_of(folder: Path, name: str, *rows: object, **options: object) -> Benchmark:
    """The task over these rows."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load_task(name, path=path, **options)


def items_of(folder: Path, name: str, *rows: object, **options: object) -> Sequence[Item]:
    """The items of these rows."""
    return task_of(folder, name, *rows, **options).read().items
