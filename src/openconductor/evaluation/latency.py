"""How long questions took, apart from the table: wall time is never the same twice.

In: Results. Out: ``latency.json``: for each system and task the median and the 95th percentile of its episodes.

An episode's seconds run from asking to answer, waits for limits among them. What was answered from a journal took next
to nothing: a run that was cut off and resumed says less about latency than one that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from openconductor.evaluation.results import Results


def latency(results: Results) -> list[dict[str, object]]:
    """One object a system and task: seconds of wall time an episode, and seconds of its workers' work."""
    rows: list[dict[str, object]] = []
    for (system, task), records in results.by_row().items():
        seconds = [record.seconds for record in records]
        rows.append(
            {
                "system": system,
                "task": task,
                "episodes": len(records),
                "p50_seconds": quantile(seconds, 0.5),
                "p95_seconds": quantile(seconds, 0.95),
                "mean_seconds": fmean(seconds) if seconds else None,
                "work_seconds": fmean(record.usage.seconds for record in records) if records else None,
            }
        )
    return rows


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value below which a share of the values lies, between the two nearest in proportion; None without values.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    if not values:
        return None
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])
