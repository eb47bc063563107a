"""The answers of an evaluation as a pandas frame, and the pivot that measures share.

pandas is imported when a frame is made, because ``ask`` and ``demo`` do without it.
"""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

    from openconductor.evaluation.records import Record

Frame = Any
"""A pandas frame or series inside this package. pandas has no type stubs, so uses are unchecked."""

COLUMNS = {
    "system": "string",
    "task": "string",
    "problem": "string",
    "sample": "int64",
    "kind": "string",
    "correct": "boolean",
    "score": "float64",
    "status": "string",
    "answer": "string",
    "extracted": "string",
    "note": "string",
    "valid": "boolean",
    "cut": "bool",
    "rounds": "int64",
    "steps": "int64",
    "calls": "int64",
    "input_tokens": "int64",
    "cached_tokens": "int64",
    "output_tokens": "int64",
    "reasoning_tokens": "int64",
    "dollars": "float64",
    "unpriced_calls": "int64",
    "work_seconds": "float64",
    "seconds": "float64",
    "episode": "string",
    "error": "string",
}
"""The columns of a frame of answers, with their dtypes; ``Results.frame`` describes them."""


_SURROGATES = re.compile("[\ud800-\udfff]")


def plain_text(text: str) -> str:
    """Replace lone surrogates, which answers may hold and pandas cannot store."""
    return _SURROGATES.sub("\ufffd", text)


def frame_of(records: Iterable[Record]) -> DataFrame:
    """Return a frame with a row for each record, in the order given (``Results.frame``)."""
    import pandas as pd

    rows = [_row(record) for record in records]
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str):
                row[name] = plain_text(value)
    frame: Frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(COLUMNS)


def right_shares(records: Iterable[Record], by: Sequence[str] = ("task", "problem")) -> Frame:
    """Return the share of right answers, with a row for each question and a column for each system.

    Rows and columns stand in the order in which they first come. NaN: no answer was decided.

    Args:
        records: the answers.
        by: the columns of the frame that tell questions apart.
    """
    frame: Frame = frame_of(records)
    means = frame.groupby([*by, "system"], sort=False)["score"].mean()
    questions = frame.set_index(list(by)).index.unique()
    return means.unstack("system").reindex(index=questions, columns=frame["system"].unique())


def _row(record: Record) -> dict[str, Any]:
    usage = record.usage
    return {
        "system": record.system,
        "task": record.task,
        "problem": record.problem,
        "sample": record.sample,
        "kind": record.kind,
        "correct": record.correct,
        "score": None if record.correct is None else float(record.correct),
        "status": record.status,
        "answer": record.answer,
        "extracted": record.extracted,
        "note": record.note,
        "valid": record.valid,
        "cut": record.cut,
        "rounds": len(record.rounds),
        "steps": sum(len(workflow) for workflow in record.workflows),
        "calls": record.calls,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "dollars": float(usage.dollars),
        "unpriced_calls": usage.unpriced_calls,
        "work_seconds": usage.seconds,
        "seconds": record.seconds,
        "episode": record.episode,
        "error": record.error,
    }
