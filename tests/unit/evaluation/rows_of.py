"""Records and results made by hand, for tests of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from openconductor.evaluation.eval_config import EvalConfig, TaskTable
from openconductor.evaluation.records import Record, Results, RoundRecord, Status
from openconductor.types import Step, Usage, Workflow

WORKERS = {0: "ann", 1: "bob"}
_CORRECT: dict[str, tuple[bool | None, Status]] = {
    "+": (True, "graded"),
    "-": (False, "graded"),
    "?": (False, "unparsed"),
    "!": (False, "invalid"),
    "r": (False, "refused"),
    "u": (None, "ungraded"),
    "f": (None, "failed"),
}
ONE = Workflow([Step(0, "Solve.")])
TWO = Workflow([Step(0, "Solve."), Step(1, "Check.", "all")])


def record(mark: str, problem: str = "p", sample: int = 0, **changes: Any) -> Record:
    """A record by its mark: right ``+``, wrong ``-``, unparsed ``?``, invalid ``!``.

    Refused ``r``, masked ``u f``.
    """
    correct, status = _CORRECT[mark]
    values: dict[str, Any] = {
        "system": "conductor",
        "task": "t",
        "kind": "easy",
        "answer": "42",
        "extracted": "42",
        "note": "",
        "rounds": (),
        "calls": 1,
        "usage": Usage(input_tokens=10, output_tokens=5, dollars=Decimal("0.01")),
        "seconds": 1.0,
        **changes,
    }
    return Record(problem=problem, sample=sample, correct=correct, status=status, **values)


def records(marks: Sequence[str], **changes: Any) -> list[Record]:
    """Make records: one problem a text, one repeat a character: ``["++-", "u+-"]``.

    A blank leaves a repeat out.
    """
    made: list[Record] = []
    for place, repeats in enumerate(marks):
        for sample, mark in enumerate(repeats):
            if mark != " ":
                made.append(record(mark, f"p{place}", sample, **changes))
    return made


def planned(*workflows: Workflow | None, reason: str = "missing_list") -> tuple[RoundRecord, ...]:
    """Rounds that a Conductor wrote."""
    return tuple(RoundRecord(one, True, "" if one is not None else reason) for one in workflows)


def results_of(
    found: Iterable[Record],
    systems: Sequence[str],
    *,
    tasks: Sequence[str] = ("t",),
    expected: dict[str, int] | None = None,
    **options: Any,
) -> Results:
    """Make results of records; ``options`` are those of the recipe."""
    tables = tuple(TaskTable(task) for task in tasks)
    config = EvalConfig("by hand", tuple(systems), tables, **options)
    return Results.of_records(config, found, workers=WORKERS, expected=expected)
